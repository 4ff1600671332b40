package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"colabrelay/shared/enrollment"
	"colabrelay/shared/tier"
)

// soak reports whether each test of enrollments runs in full, as under make soak.
func longSuites() bool { return os.Getenv("LONG") != "" }

// A killed executor can't clean up. What it leaves must be public or sealed, and must not
// keep another one away. Without LONG, only the steps at which most of it exists are tried.
func TestAKillAtAnyStepLeavesNoSecretAndNoLock(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, reach := range map[string]func(e *enrolling){
		"key":   func(e *enrolling) { e.key() },
		"grant": func(e *enrolling) { e.grant(enrollment.Grant{Tunnel: "none", NgrokToken: ngrokToken}) },
		"listening": func(e *enrolling) {
			e.grant(enrollment.Grant{Tunnel: "none", NgrokToken: ngrokToken})
			e.eventually(func() bool { return e.localURL() != "" })
		},
		"answer": func(e *enrolling) { e.paired(enrollment.Grant{Tunnel: "none", NgrokToken: ngrokToken}) },
		"use": func(e *enrolling) {
			e.paired(enrollment.Grant{Tunnel: "none", NgrokToken: ngrokToken})
			e.submit("one", "1", 20)
		},
	} {
		if !longSuites() && name != "listening" && name != "use" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startEnroll(t)
			reach(e)
			e.signal(syscall.SIGKILL)
			e.exit()
			e.holdsNoSecret(e.secret.Reveal(), ngrokToken)
			if name != "use" {
				return
			}
			next := startEnroll(t, in(e.dir))
			next.paired(enrollment.Grant{Tunnel: "none"})
			if got := resultOf(next.submit("again", "6*7", 30)); got != "42" {
				t.Errorf("the next executor's run gave %s", got)
			}
		})
	}
}

func TestFoldersThatOthersCouldEnterAreRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(folder string) error{
		"open to others": func(f string) error { return os.Chmod(f, 0o755) },
		"missing":        os.Remove,
		"a link": func(f string) error {
			if err := os.Rename(f, f+".real"); err != nil {
				return err
			}
			return os.Symlink(f+".real", f)
		},
		"a file": func(f string) error {
			if err := os.Remove(f); err != nil {
				return err
			}
			return os.WriteFile(f, nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "folder")
			must(t, os.Mkdir(folder, 0o700))
			must(t, spoil(folder))
			p := newProgram(t)
			offer, err := enrollment.NewOffer()
			must(t, err)
			p.cmd.Args = append([]string{p.cmd.Args[0], "enroll", "--job", offer.JobID(), "--relay-key", offer.PublicKey(), "--dir", folder}, p.cmd.Args[1:]...)
			p.run()
			if code, _ := p.exit(); code != 1 || p.errs.String() == "" {
				t.Errorf("exit code is %d, stderr:\n%s", code, p.errs)
			}
		})
	}
}
