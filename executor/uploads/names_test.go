package uploads

import (
	"path/filepath"
	"testing"

	"colabrelay/shared/contract"
)

func TestNamesThatLookEscapedAreUploadedApart(t *testing.T) {
	in := newInbox(t)
	twins := []string{"\xff", `\xff`, `\x5cxff`, "\\\xff"} // some look like the escaped form of others
	for _, name := range twins {
		name = "new" + name + "/" + name
		if up := in.send(contract.EscapeName(name), body(7), false); up.Path != contract.EscapeName(filepath.Join(in.Workdir, name)) {
			t.Errorf("%q was stored as %q", name, up.Path)
		}
		in.holds(name, body(7))
	}
}
