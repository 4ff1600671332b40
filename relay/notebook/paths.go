package notebook

import "errors"

// ErrForbiddenPath means that Roots do not allow a path. The error's text names the rule and the
// setting that changes it.
var ErrForbiddenPath = errors.New("this path is not allowed for notebooks")

// Roots are the folders whose notebooks tools may read and write. A model names the paths.
type Roots struct {
	Home    string   // the user's home folder
	Save    string   // LOCAL_SAVE_DIR
	Dirs    []string // RELAY_NOTEBOOK_DIRS; may begin with ~
	Working string   // the folder of relative paths; it must itself be inside one of the others
}

// Resolve returns the absolute path of a notebook, which need not exist: a leading ~ is Home, and
// a relative path starts at Working. The path must end in .ipynb, in any case, have no hidden part
// below its root, and be inside a root, also after its links are followed. The error wraps
// ErrForbiddenPath.
func (r Roots) Resolve(path string) (string, error) { return "", errUnfinished }
