package main

import (
	"os"
	"path/filepath"
	"testing"

	"colabrelay/shared/enrollment"
)

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
			if code := p.exit(); code != 1 || p.errs.String() == "" {
				t.Errorf("exit code is %d, stderr:\n%s", code, p.errs)
			}
		})
	}
}
