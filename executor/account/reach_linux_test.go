package account

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/privileged"
	"colabrelay/shared/tier"
)

func TestPathsInTheUsersReachAreRefused(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u := nobody(t)
	own := privileged.Folder(t, u.uid, u.gid)
	top := filepath.Dir(own)
	make := func(name string, mode os.FileMode, uid, gid int) {
		t.Helper()
		path := filepath.Join(top, name)
		must(t, os.MkdirAll(path, 0o755))
		must(t, os.Chown(path, uid, gid))
		must(t, os.Chmod(path, mode))
	}
	make("private", 0o700, 0, 0)
	make("public", 0o777, 0, 0)
	make("sticky", 0o777|os.ModeSticky, 0, 0)
	make("sticky/roots", 0o755, 0, 0)
	make("sticky/users", 0o755, u.uid, u.gid)
	make("group", 0o775, 0, u.gid)
	make("other-group", 0o775, 0, 4243)
	make("folder/roots", 0o755, 0, 0) // root's, in the user's own folder
	make("somebody", 0o755, 4243, 4243)
	must(t, os.Symlink("folder", filepath.Join(top, "link")))
	must(t, os.Symlink(filepath.Join(top, "private"), filepath.Join(own, "link")))
	must(t, os.WriteFile(filepath.Join(top, "file"), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(top, "writable"), nil, 0o600))
	must(t, os.Chmod(filepath.Join(top, "writable"), 0o646))
	must(t, os.WriteFile(filepath.Join(top, "users"), nil, 0o600))
	must(t, os.Chown(filepath.Join(top, "users"), u.uid, u.gid))

	for path, safe := range map[string]bool{
		"": true, "new": true, "new/deeper": true, "private": true, "private/new": true, "file": true, "somebody": true,
		"sticky/roots": true, "sticky/roots/new": true, "other-group/new": true,
		"folder": false, "folder/new": false, "folder/roots": false, "folder/roots/new": false, "link/new": false,
		"public": false, "public/new": false, "sticky": false, "sticky/new": false, "sticky/users": false, "sticky/users/new": false,
		"group": false, "group/new": false, "writable": false, "users": false,
		"folder/link": true, // the link is in the user's reach, but what it leads to now is used from now on
	} {
		real, err := u.CheckOutOfReach(filepath.Join(top, path))
		if safe != (err == nil) || err != nil && !errors.Is(err, ErrInReach) {
			t.Errorf("%q: %q, %v", path, real, err)
		}
		if err == nil && strings.Contains(real, "link") {
			t.Errorf("%q is to be used as %q", path, real)
		}
		if err != nil && !strings.Contains(err.Error(), `the user could replace it by changing "`+top) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if path, err := (*User)(nil).CheckOutOfReach(own); path != own || err != nil {
		t.Errorf("without a user: %q, %v", path, err)
	}
}

// What code of the user leaves in a folder takes bounded time and memory to remove.
func TestRemovalsAreBoundedAndFollowNoLink(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	u := nobody(t)
	own := privileged.Folder(t, u.uid, u.gid)
	precious := filepath.Join(own, "precious")
	victim := filepath.Join(own, "victim")
	u.Do(func() {
		must(t, os.MkdirAll(filepath.Join(victim, "a", "b"), 0o700))
		must(t, os.WriteFile(precious, nil, 0o600))
		must(t, os.Symlink(own, filepath.Join(victim, "a", "link")))
	})
	must(t, u.RemoveAll(victim))
	if _, err := os.Lstat(victim); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if _, err := os.Lstat(precious); err != nil {
		t.Error(err)
	}
	for depth, want := range map[int]error{maxDepth: nil, maxDepth + 1: ErrTooMuch} {
		u.Do(func() { must(t, os.MkdirAll(victim+strings.Repeat("/d", depth), 0o700)) })
		if err := u.RemoveAll(victim); !errors.Is(err, want) {
			t.Errorf("%d folders in each other: %v", depth, err)
		}
		must(t, os.RemoveAll(victim)) // what is left
	}
	must(t, os.WriteFile(filepath.Join(filepath.Dir(own), "roots"), nil, 0o600))
	if err := u.RemoveAll(filepath.Join(filepath.Dir(own), "roots")); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a file of root: %v", err)
	}
}
