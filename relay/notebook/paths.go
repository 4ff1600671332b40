package notebook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"colabrelay/shared/filename"
)

// ErrForbiddenPath means that Roots do not allow a path. The error's text names the rule and the
// setting that changes it.
var ErrForbiddenPath = errors.New("this path is not allowed for notebooks")

// Roots are the folders whose notebooks tools may read and write. A model names the paths. Empty
// fields allow nothing.
type Roots struct {
	Home    string   // the user's home folder
	Save    string   // LOCAL_SAVE_DIR
	Dirs    []string // RELAY_NOTEBOOK_DIRS; may begin with ~
	Working string   // the folder of relative paths; it must itself be inside one of the others
}

const howToAllow = "add the folder to RELAY_NOTEBOOK_DIRS in the relay's configuration, and restart the relay, to allow it"

func forbidden(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrForbiddenPath, fmt.Sprintf(format, args...))
}

// Resolve returns the real path of a notebook, which need not exist: a leading ~ is Home, and a
// relative path starts at Working. The path must end in .ipynb, in any case, have no hidden part
// below its root, and be inside a root, and so must the file that it leads to if it has links.
// The error wraps ErrForbiddenPath.
func (r Roots) Resolve(path string) (string, error) {
	if err := checkText(path); err != nil {
		return "", err
	}
	full, err := r.absolute(path)
	if err != nil {
		return "", err
	}
	if err := r.check(full, r.all()); err != nil {
		return "", err
	}
	real, err := realPath(full)
	if err != nil {
		return "", err
	}
	if err := r.check(real, realRoots(r.all())); err != nil && real != full {
		return "", fmt.Errorf("%w; %q is a link or inside one, and leads there", err, full)
	} else if err != nil {
		return "", err
	}
	return real, nil
}

// checkText refuses what no notebook's path has.
func checkText(path string) error {
	switch {
	case path == "":
		return forbidden("it is empty: name a notebook, such as analysis.ipynb")
	case len(path) > 4096 || strings.ContainsFunc(path, unicode.IsControl):
		return forbidden("it has control characters or over 4,096 bytes")
	case !isNotebookName(path):
		return forbidden("%q does not end in .ipynb", path)
	}
	if err := filename.CheckTyped(path); err != nil {
		return forbidden("%v", err)
	}
	return nil
}

func isNotebookName(path string) bool { return strings.EqualFold(filepath.Ext(path), ".ipynb") }

// absolute returns an absolute path without links followed.
func (r Roots) absolute(path string) (string, error) {
	rest, isHome := filename.InHome(path)
	switch {
	case isHome && r.Home == "":
		return "", forbidden("%q begins with ~, but the home folder is not known: use an absolute path", path)
	case isHome:
		return filepath.Join(r.Home, rest), nil
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	case filepath.VolumeName(path) != "" || strings.HasPrefix(filepath.ToSlash(path), "/"):
		return "", forbidden("%q depends on the current drive: use an absolute path", path)
	case r.Working == "":
		return "", forbidden("%q is relative, but the relay's working folder is not known: use an absolute path", path)
	}
	if _, ok := within(r.Working, r.all()); !ok {
		return "", forbidden("%q is relative to the relay's working folder %q, which is outside %s: use an absolute path, or %s", path, r.Working, r.names(), howToAllow)
	}
	return filepath.Join(r.Working, path), nil
}

// all returns the roots, as absolute paths.
func (r Roots) all() (roots []string) {
	for _, root := range append([]string{r.Home, r.Save}, r.Dirs...) {
		if rest, isHome := filename.InHome(root); isHome && r.Home != "" {
			root = filepath.Join(r.Home, rest)
		}
		if filepath.IsAbs(root) {
			roots = append(roots, filepath.Clean(root))
		}
	}
	return roots
}

// names describes the roots.
func (r Roots) names() string {
	names := []string{fmt.Sprintf("your home folder %q", r.Home), fmt.Sprintf("LOCAL_SAVE_DIR %q", r.Save)}
	if len(r.Dirs) > 0 {
		names = append(names, fmt.Sprintf("RELAY_NOTEBOOK_DIRS %q", r.Dirs))
	}
	return strings.Join(names, " and ")
}

// check refuses a path that is no notebook, outside the roots, or hidden below all that it is in.
func (r Roots) check(path string, roots []string) error {
	if !isNotebookName(path) {
		return forbidden("%q does not end in .ipynb", path)
	}
	below, ok := within(path, roots)
	if !ok {
		return forbidden("%q is outside %s: %s", path, r.names(), howToAllow)
	}
	hidden := ""
	for _, rel := range below {
		part := hiddenPart(rel)
		if part == "" {
			return nil
		}
		hidden = part
	}
	return forbidden("%q has the hidden part %q, and tools leave hidden files and folders alone: %s", path, hidden, howToAllow)
}

// within returns where a path is below each root that it is in; a root is in itself.
func within(path string, roots []string) (below []string, ok bool) {
	for _, root := range roots {
		rel, err := filepath.Rel(root, path)
		if err == nil && filepath.IsLocal(rel) {
			below = append(below, rel)
		}
	}
	return below, len(below) > 0
}

// hiddenPart returns the first part of a relative path that begins with a dot or, on Windows,
// names a stream of a file.
func hiddenPart(rel string) string {
	for _, part := range strings.Split(filepath.ToSlash(rel), "/") {
		if strings.HasPrefix(part, ".") && part != "." || filepath.Separator == '\\' && strings.Contains(part, ":") {
			return part
		}
	}
	return ""
}

// realPath follows the links of a path as far as it exists.
func realPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", forbidden("%q cannot be looked up: %v", path, err)
	}
	if _, err := os.Lstat(path); err == nil {
		return "", forbidden("%q is a link to a file that is missing", path)
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path, nil
	}
	parent, err = realPath(parent)
	return filepath.Join(parent, filepath.Base(path)), err
}

// realRoots follows the links of roots. One that does not exist has no notebooks.
func realRoots(roots []string) (real []string) {
	for _, root := range roots {
		if root, err := realPath(root); err == nil {
			real = append(real, root)
		}
	}
	return real
}
