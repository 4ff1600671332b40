package filename

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"colabrelay/shared/lazy"
)

// ErrNotation means that a path has notation that only a shell or a browser replaces, such as
// $HOME. A program that took it for a name would create a folder of that name.
var ErrNotation = errors.New("write the path in full")

// notation is ~NAME and file: at the beginning, and $NAME, ${NAME}, $(…) and %NAME% where a part of
// the path begins. ${NAME} is one anywhere.
var notation = lazy.Regexp(`^(?:(?i:file:)|~[^/\\]+)|(?:^|[/\\])(?:\$[A-Za-z_{(][^/\\]*|%[A-Za-z_][A-Za-z0-9_()]{2,}%)|\$\{[A-Za-z_]\w*\}`)

// InHome returns what follows the ~ of a path that is the home folder or begins in it.
func InHome(path string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, "~")
	return rest, ok && (rest == "" || os.IsPathSeparator(rest[0]))
}

// CheckTyped returns ErrNotation if a path has notation that nobody replaces here. ~ and ~/… have
// none: they are the home folder. A path that begins with ./ is taken as it is.
func CheckTyped(path string) error {
	if rest, ok := InHome(path); ok {
		path = rest
	}
	part := strings.TrimLeft(notation().FindString(path), `/\`)
	switch {
	case part == "" || len(path) > 1 && path[0] == '.' && os.IsPathSeparator(path[1]):
		return nil
	case strings.EqualFold(part, "file:"):
		return fmt.Errorf("%q is a URL, not a path: %w", path, ErrNotation)
	}
	return fmt.Errorf("%q has %q, which no shell replaces here: %w", path, part, ErrNotation)
}

// Explain adds to err, which is about a typed path, what notation the path has.
func Explain(err error, path string) error {
	if why := CheckTyped(path); err != nil && why != nil {
		return fmt.Errorf("%w; %w", err, why)
	}
	return err
}

// Typed returns the path on this computer that somebody wrote where no shell reads it.
func Typed(path string) (string, error) {
	if err := CheckTyped(path); err != nil {
		return path, err
	}
	rest, ok := InHome(path)
	if !ok {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path, fmt.Errorf("%q begins with ~, but the home folder is not known: %w", path, ErrNotation)
	}
	return home + rest, nil
}

// Existing is Typed for something that is read: a name of this very spelling is taken first.
func Existing(path string) (string, error) {
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	return Typed(path)
}
