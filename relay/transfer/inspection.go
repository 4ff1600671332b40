package transfer

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// inspection applies a Guard in one upload.
type inspection struct {
	*Guard
	named   fileSet         // the Guard's Secrets
	secrets func() *secrets // searches at the first file with several links
}

// newInspection returns nil if there is no guard.
func newInspection(g *Guard) *inspection {
	if g == nil {
		return nil
	}
	i := &inspection{g, fileSet{}, sync.OnceValue(g.findSecrets)}
	for _, name := range g.Secrets {
		i.named.add(name)
	}
	return i
}

// finding is what guarded content a file may have.
type finding string

const (
	harmless finding = ""
	foundKey finding = "keys or passwords"
	foundOwn finding = "the relay's own secrets"
	unsure   finding = "one of the relay's own files under a second name (the relay's folders cannot be read completely: remove old checkpoints, or upload a copy of the file)"
)

// findings is the order of findings in an error.
var findings = []finding{foundOwn, unsure, foundKey}

// identify compares a file with the guarded files, whatever its name is. If it is one of
// them, the second result is the name of that guarded file.
func (i *inspection) identify(real string, info fs.FileInfo) (finding, string) {
	if !hasSeveralLinks(info) {
		return harmless, ""
	}
	secrets := i.secrets()
	if same := secrets.own.find(info); len(same) > 0 {
		return foundOwn, same[0].name
	}
	if !secrets.ownComplete {
		return unsure, ""
	}
	same := secrets.keys.find(info)
	if len(same) == 0 || i.permits(real) || slices.ContainsFunc(same, func(k knownFile) bool { return i.permits(k.name) }) {
		return harmless, ""
	}
	return foundKey, same[0].name
}

// inspect checks a file by its folder, its identity, its name and its first bytes. own says
// whether the folder is the relay's.
func (i *inspection) inspect(real string, info fs.FileInfo, own bool) (finding, string) {
	if own || len(i.named.find(info)) > 0 {
		return foundOwn, ""
	}
	found, other := i.identify(real, info)
	if found == harmless && (looksLikeKey(real) || holdsKey(real, info)) && !i.permits(real) {
		return foundKey, ""
	}
	return found, other
}

// check refuses a guarded file, given by its real path and its open description.
func (i *inspection) check(real string, open fs.FileInfo) error {
	if i == nil {
		return nil
	}
	found, other := i.inspect(real, open, i.isOwn(filepath.Dir(real)))
	switch {
	case found == harmless:
		return nil
	case other == "" || other == real:
		return fmt.Errorf("%w: %q may contain %s", ErrGuarded, real, found)
	}
	return fmt.Errorf("%w: %q may contain %s: it is the same file as %q", ErrGuarded, real, found, other)
}

// CheckUpload returns the ErrGuarded that Upload would return with g, without sending
// anything.
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

// checkTree refuses a tree that contains a guarded file. If the file were skipped, the copy
// would look complete; the caller must decide.
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
	own := map[string]bool{} // whether a folder is the relay's
	for _, e := range t.files {
		at := filepath.Join(top, filepath.FromSlash(e.name))
		if e.link {
			if at, err = filepath.EvalSymlinks(at); err != nil {
				return err
			}
		}
		dir := filepath.Dir(at)
		if _, checked := own[dir]; !checked {
			own[dir] = i.isOwn(dir)
		}
		found, _ := i.inspect(at, e.info, own[dir])
		if found != harmless {
			refused[found] = append(refused[found], e.name)
		}
	}
	return refusal(root.Name(), refused)
}

// maxRefused bounds how many files of each finding a refusal names.
const maxRefused = 10

// refusal returns the error about guarded files in a folder, or nil if there are none.
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
	return fmt.Errorf("%w: %q may contain %s", ErrGuarded, folder, strings.Join(parts, "; "))
}
