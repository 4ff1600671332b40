package hostconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"colabrelay/shared/keep"
)

// lockWait is how long an install waits for another one.
const lockWait = 30 * time.Second

// maxNames bounds the entries of a folder that are compared with a pattern, and
// maxMatches the ones that are used. Any program may add folders there.
const (
	maxNames   = 10_000
	maxMatches = 4
)

// User is where a user's files are.
type User struct {
	OS     string // as in runtime.GOOS
	Home   string // the home folder
	Config string // os.UserConfigDir
	Cache  string // os.UserCacheDir
	Folder string // the present folder
	Data   string // where programs keep their own data: on Windows, %LOCALAPPDATA%
	Getenv func(string) string
}

// ThisUser is the user who runs this program.
func ThisUser(getenv func(string) string) (User, error) {
	u := User{OS: runtime.GOOS, Getenv: getenv}
	var err error
	if u.Home, err = os.UserHomeDir(); err != nil {
		return User{}, fmt.Errorf("find the user's home folder: %v", err)
	}
	if u.Config, err = os.UserConfigDir(); err != nil {
		return User{}, fmt.Errorf("find the user's config folder: %v", err)
	}
	if u.Cache, err = os.UserCacheDir(); err != nil {
		return User{}, fmt.Errorf("find the user's cache folder: %v", err)
	}
	u.Data = u.dataFolder()
	u.Folder, _ = os.Getwd()
	return u, nil
}

func (u User) dataFolder() string {
	switch u.OS {
	case "windows":
		return u.or("LOCALAPPDATA", filepath.Join(u.Home, "AppData", "Local"))
	case "darwin":
		return filepath.Join(u.Home, "Library", "Application Support")
	}
	if dir := u.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) { // the specification ignores other paths
		return dir
	}
	return filepath.Join(u.Home, ".local", "share")
}

// or returns the folder that an environment variable names, or else folder.
func (u User) or(variable, folder string) string { return cmp.Or(u.Getenv(variable), folder) }

// Lock waits until no other process of this user installs or uninstalls, at most
// half a minute.
func (u User) Lock(ctx context.Context) (unlock func(), err error) {
	path := filepath.Join(u.Cache, "colab-relay", "install.lock")
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err = keep.Lock(waiting, path)
	if errors.Is(err, keep.ErrLocked) && ctx.Err() == nil {
		return nil, fmt.Errorf("another colab-relay is installing or uninstalling (it holds %q): try again when it has ended", path)
	}
	return unlock, err
}

// place is a file that one version of a host reads.
type place struct {
	sign string // exists where this version is installed; its last element may contain one *
	file string // begins with sign if sign contains a *
}

// found returns the place if its sign exists, once for each match of its sign.
func (p place) found() []place {
	dir, pattern := filepath.Split(p.sign)
	if !strings.Contains(pattern, "*") {
		if _, err := os.Stat(p.sign); err != nil {
			return nil
		}
		return []place{p}
	}
	folder, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(maxNames)
	var all []place
	for _, name := range names {
		if matches, _ := filepath.Match(pattern, name); matches && len(all) < maxMatches {
			sign := filepath.Join(dir, name)
			all = append(all, place{sign, sign + strings.TrimPrefix(p.file, p.sign)})
		}
	}
	return all
}

// resolve returns the file at a path. It follows a link, because replacing the link would
// separate the host from the file that the user keeps elsewhere. It refuses a link
// without a target, which may only be missing for now, as on a drive that is not mounted.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the host's config: %v", err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	if to, err := os.Readlink(path); err == nil {
		return "", fmt.Errorf("%q: %w: it is a link to %q, which cannot be followed", path, ErrForm, to)
	}
	return path, nil
}
