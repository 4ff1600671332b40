package transfer

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// inspection is the guard at work in one upload.
type inspection struct {
	*Guard
	secrets func() *secrets // looked for when the first file with several links comes
}

// newInspection is nil without a guard.
func newInspection(g *Guard) *inspection {
	if g == nil {
		return nil
	}
	return &inspection{g, sync.OnceValue(g.findSecrets)}
}

// finding is what a file may hold; harmless is nothing that is guarded.
type finding string

const (
	harmless finding = ""
	foundKey finding = "keys or passwords"
	foundOwn finding = "the relay's own secrets"
	unsure   finding = "one of the relay's own files under a second name (the relay's folders can't be read whole: remove old checkpoints, or upload a copy of the file)"
)

// findings is their order in an error.
var findings = []finding{foundOwn, unsure, foundKey}

// identify compares a file with the guarded ones, whatever name it goes by here. Where
// it is one of them, it gives the other's name too.
func (i *inspection) identify(real string, info fs.FileInfo) (finding, string) {
	if !hasSeveralLinks(info) {
		return harmless, ""
	}
	known := i.secrets()
	if same := known.own.find(info); len(same) > 0 {
		return foundOwn, same[0].name
	}
	if !known.ownWhole {
		return unsure, ""
	}
	same := known.keys.find(info)
	if len(same) == 0 || i.permits(real) {
		return harmless, ""
	}
	for _, k := range same {
		if i.permits(k.name) {
			return harmless, ""
		}
	}
	return foundKey, same[0].name
}

// inspect judges a file by its folder, its identity and its name. own is whether the
// folder is the relay's.
func (i *inspection) inspect(real string, info fs.FileInfo, own bool) (finding, string) {
	if own {
		return foundOwn, ""
	}
	found, other := i.identify(real, info)
	if found == harmless && i.isKey(real) {
		return foundKey, ""
	}
	return found, other
}

// check refuses a file, given by its real path and what was opened there.
func (i *inspection) check(real string, open fs.FileInfo) error {
	if i == nil {
		return nil
	}
	found, other := i.inspect(real, open, i.isOwn(filepath.Dir(real)))
	switch {
	case found == harmless:
		return nil
	case other == "" || other == real:
		return fmt.Errorf("%w: %q may hold %s", ErrGuarded, real, found)
	}
	return fmt.Errorf("%w: %q may hold %s: it is the same file as %q", ErrGuarded, real, found, other)
}

// CheckUpload refuses what Upload would refuse for its guard, without sending anything.
func CheckUpload(ctx context.Context, local string, g *Guard) error {
	info, err := statLocal(local)
	if err != nil {
		return err
	}
	i := newInspection(g)
	if !info.IsDir() {
		real, err := realPath(local, info)
		if err != nil {
			return fmt.Errorf("uploading %q: %w", local, err)
		}
		return i.check(real, info)
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return fmt.Errorf("opening the folder %q: %w", local, err)
	}
	defer root.Close()
	tree, err := walkLocal(ctx, root)
	if err != nil {
		return err
	}
	return i.checkTree(root, tree)
}

// checkTree refuses a tree that holds a guarded file: left out unsaid it would look
// whole, and the caller is to decide.
func (i *inspection) checkTree(root *os.Root, t localTree) error {
	if i == nil {
		return nil
	}
	top, err := filepath.Abs(root.Name())
	if err == nil {
		top, err = filepath.EvalSymlinks(top)
	}
	if err != nil {
		return err
	}
	refused := map[finding][]string{}
	own := map[string]bool{} // folders that were looked at, and whether they are the relay's
	for _, e := range t.files {
		at := filepath.Join(top, filepath.FromSlash(e.name))
		if e.link {
			if at, err = filepath.EvalSymlinks(at); err != nil {
				return err
			}
		}
		dir := filepath.Dir(at)
		if _, known := own[dir]; !known {
			own[dir] = i.isOwn(dir)
		}
		found, _ := i.inspect(at, e.info, own[dir])
		if found != harmless {
			refused[found] = append(refused[found], e.name)
		}
	}
	return refusal(root.Name(), refused)
}

// maxRefused is how many files a refusal of a tree names of each kind.
const maxRefused = 10

// refusal is the error about guarded files in a folder; nil without any.
func refusal(folder string, refused map[finding][]string) error {
	var parts []string
	for _, kind := range findings {
		names := refused[kind]
		if len(names) == 0 {
			continue
		}
		var quoted []string
		for _, name := range names[:min(len(names), maxRefused)] {
			quoted = append(quoted, fmt.Sprintf("%q", name))
		}
		part := string(kind) + ": " + strings.Join(quoted, ", ")
		if n := len(names) - maxRefused; n > 0 {
			part += fmt.Sprintf(" and %d more", n)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %q may hold %s", ErrGuarded, folder, strings.Join(parts, "; "))
}
