package hostconfig

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/tailscale/hujson"
)

// removeJSON deletes the relay's entry. Comments outside the entry stay.
func removeJSON(text []byte, h Host) ([]byte, error) {
	bare := bytes.TrimPrefix(text, byteOrderMark)
	root, err := parse(bare)
	if err != nil {
		return nil, err
	}
	list, ok := find(&root, h.list).Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%q is not an object", h.list)
	}
	for i, m := range slices.Backward(list.Members) {
		if m.Name.Value.(hujson.Literal).String() != serverName {
			continue
		}
		program := cmp.Or(find(&m.Value, "command"), &hujson.Value{})
		if text, ok := program.Value.(hujson.Literal); !ok || !IsRelay(text.String()) {
			return nil, fmt.Errorf("%q occurs twice in %q, once for another program", serverName, h.list)
		}
		removeMember(list, i)
	}
	return slices.Concat(text[:len(text)-len(bare)], root.Pack()), nil
}

// removeMember deletes a member and keeps the comments around it.
func removeMember(o *hujson.Object, i int) {
	gone := o.Members[i]
	last := i == len(o.Members)-1
	o.Members = slices.Delete(o.Members, i, i+1)
	between := join(gone.Name.BeforeExtra, gone.Value.AfterExtra)
	switch {
	case !last:
		next := &o.Members[i].Name
		next.BeforeExtra = join(between, next.BeforeExtra)
		return
	case i > 0 && gone.Value.AfterExtra == nil: // no comma may follow what is now the last member
		before := &o.Members[i-1].Value
		between, before.AfterExtra = join(before.AfterExtra, between), nil
	case i > 0 && o.Members[i-1].Value.AfterExtra == nil:
		o.Members[i-1].Value.AfterExtra = hujson.Extra{} // keeps its comma
	}
	o.AfterExtra = join(between, o.AfterExtra)
	if i == 0 && len(bytes.TrimSpace(o.AfterExtra)) == 0 {
		o.AfterExtra = nil
	}
}

// join puts two texts of spaces and comments together. Spaces at the end of the first go
// unless they end a comment.
func join(a, b hujson.Extra) hujson.Extra {
	comments := bytes.TrimRight(a, " \t\r\n")
	spaces := b[:len(b)-len(bytes.TrimLeft(b, " \t\r\n"))]
	if len(comments) > 0 && !bytes.Contains(spaces, []byte("\n")) {
		return slices.Concat(a, b)
	}
	return slices.Concat(comments, b)
}
