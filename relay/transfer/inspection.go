package transfer

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// inspection applies a Guard in one upload.
type inspection struct {
	*Guard
	named []fs.FileInfo // the Guard's Secrets
}

// newInspection returns nil if there is no guard.
func newInspection(g *Guard) *inspection {
	if g == nil {
		return nil
	}
	i := &inspection{Guard: g}
	for _, name := range g.Secrets {
		if info, err := os.Stat(name); err == nil {
			i.named = append(i.named, info)
		}
	}
	return i
}

// finding is what guarded content a file may have.
type finding string

const (
	harmless finding = ""
	foundKey finding = "keys or passwords"
	foundOwn finding = "the relay's own secrets"
)

// findings is the order of findings in an error.
var findings = []finding{foundOwn, foundKey}

// inspect checks a file by its folder, its identity, its name and its first bytes. own says
// whether the folder is the relay's.
func (i *inspection) inspect(real string, info fs.FileInfo, own bool) finding {
	switch {
	case own || slices.ContainsFunc(i.named, func(secret fs.FileInfo) bool { return os.SameFile(secret, info) }):
		return foundOwn
	case (looksLikeKey(real) || holdsKey(real, info)) && !i.permits(real):
		return foundKey
	}
	return harmless
}

// check refuses a guarded file, given by its real path and its open description.
func (i *inspection) check(real string, open fs.FileInfo) error {
	if i == nil {
		return nil
	}
	if found := i.inspect(real, open, i.isOwn(filepath.Dir(real))); found != harmless {
		return fmt.Errorf("%w: %q may contain %s", ErrGuarded, real, found)
	}
	return nil
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
		if found := i.inspect(at, e.info, own[dir]); found != harmless {
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
