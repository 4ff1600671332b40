package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"colabrelay/shared/privileged"
	"colabrelay/shared/tier"
)

// Each setting that would put the executor in the reach of the kernel's user is refused,
// with what to do.
func TestSettingsInTheReachOfTheKernelsUserAreRefused(t *testing.T) {
	tier.Long(t)
	if !privileged.Run(t) {
		return
	}
	const nobody = 65534
	work := privileged.Folder(t, nobody, nobody)
	top := filepath.Dir(work)
	file := func(path string, mode os.FileMode) string {
		t.Helper()
		must(t, os.WriteFile(path, []byte(longSecret), mode))
		return path
	}
	closed, readable, theirs := file(filepath.Join(top, "closed"), 0o600), file(filepath.Join(top, "readable"), 0o644), file(filepath.Join(work, "theirs"), 0o600)
	program := file(filepath.Join(work, "cloudflared"), 0o755)
	must(t, os.Mkdir(filepath.Join(top, "roots"), 0o755))
	for name, test := range map[string]struct {
		args   []string
		env    []string
		temp   string
		path   string
		faults []string
	}{
		"safe":            {args: []string{"--state-dir", top + "/state", "--ready-file", top + "/ready.json"}, env: []string{envSecretFile, closed}},
		"state":           {args: []string{"--state-dir", work + "/state"}, faults: []string{`--user nobody: --state-dir "` + work + `/state": the user could replace it by changing "` + work + `": choose a path that only root can change`}},
		"state in /tmp":   {args: []string{"--state-dir", "/tmp/colab-relay-no-such-folder"}, faults: []string{`by changing "/tmp"`}},
		"ready file":      {args: []string{"--ready-file", work + "/ready.json"}, faults: []string{`--ready-file "` + work + `": the user could replace it`}},
		"readable secret": {env: []string{envSecretFile, readable}, faults: []string{`the user can read EXECUTOR_SECRET_FILE "` + readable + `": let only root read it, with chmod 600`}},
		"movable secret":  {env: []string{envSecretFile, theirs}, faults: []string{`EXECUTOR_SECRET_FILE "` + theirs + `": the user could replace it`}},
		"workdir":         {args: []string{"--workdir", top + "/roots"}, faults: []string{`--user nobody: the user can't write to --workdir "` + top + `/roots": open `, `permission denied: change its owner, or choose another folder`}},
		"temp folder":     {temp: top + "/roots", faults: []string{`can't write to the temp folder "` + top + `/roots"`, "set TMPDIR to a folder such as /tmp"}},
		"cloudflared":     {args: []string{"--tunnel", "cloudflared"}, path: work, faults: []string{`the program "` + program + `": the user could replace it`}},
		"audit log":       {args: []string{"--state-dir", top + "/state", "--audit", "/var/tmp/audit.log"}, faults: []string{`--user nobody: --audit "/var/tmp/audit.log": the user could replace it by changing "/var/tmp"`}},
		"SSH folder":      {args: []string{"--tunnel", "ssh", "--ssh", "me@host"}, env: []string{"HOME", work}, faults: []string{`the folder of SSH keys and known hosts "` + work + `/.ssh": the user could replace it`}},
		"SSH key":         {args: []string{"--tunnel", "ssh", "--ssh", "me@host", "--ssh-key", readable}, env: []string{"HOME", "/root"}, faults: []string{`the user can read --ssh-key "` + readable + `"`}},
		"known hosts":     {args: []string{"--tunnel", "ssh", "--ssh", "me@host", "--ssh-known-hosts", theirs}, env: []string{"HOME", "/root"}, faults: []string{`--ssh-known-hosts "` + theirs + `": the user could replace it`}},
		"two faults":      {args: []string{"--state-dir", work + "/state", "--ready-file", work + "/ready.json"}, faults: []string{"--state-dir", "\n--user nobody: --ready-file"}},
		"root":            {args: []string{"--user", "root"}, faults: []string{`--user root: user "root" is root: name a user without rights`}},
		"nobody there":    {args: []string{"--user", "no-such-user"}, faults: []string{`--user no-such-user: there is no user "no-such-user" on this machine: create one`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", test.temp)
			if test.path != "" {
				t.Setenv("PATH", test.path)
			}
			args := append([]string{"--workdir", work, "--user", "nobody"}, test.args...)
			c, err := parseConfig(args, env(test.env...), io.Discard)
			if (err != nil) != (len(test.faults) > 0) {
				t.Errorf("%v", err)
			}
			for _, fault := range test.faults {
				if err != nil && !strings.Contains(err.Error(), fault) {
					t.Errorf("%q does not contain %q", err, fault)
				}
			}
			if err == nil && (c.stateDir != top+"/state" || c.user.UID() != nobody) {
				t.Errorf("the state folder is %q, the user %v", c.stateDir, c.user)
			}
		})
	}
	c, err := parseConfig([]string{"--workdir", work, "--user", "nobody"}, env(), io.Discard)
	if err != nil || c.stateDir != rootStateDir {
		t.Errorf("by default the state folder is %q, %v", c.stateDir, err)
	}
}
