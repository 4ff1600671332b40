package audit

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestOnlyARegularFileOfThisUserIsOpened(t *testing.T) {
	for name, test := range map[string]struct {
		make func(t *testing.T, path string) error
		want string
	}{
		"a symbolic link": {func(t *testing.T, p string) error {
			must(t, os.WriteFile(p+".target", nil, 0o600))
			return os.Symlink(p+".target", p)
		}, "symbolic link"},
		"a FIFO": {func(t *testing.T, p string) error { return syscall.Mkfifo(p, 0o600) }, "regular file"},
		"a second name": {func(t *testing.T, p string) error {
			must(t, os.WriteFile(p+".other", nil, 0o600))
			return os.Link(p+".other", p)
		}, "hard link"},
		"a log that is in use": {func(t *testing.T, p string) error {
			cfg := config(t)
			cfg.Path = p
			t.Cleanup(running(opened(t, cfg)))
			return nil
		}, "another executor"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			must(t, test.make(t, cfg.Path))
			_, err := Open(cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), fmt.Sprintf("audit log %q: ", cfg.Path)) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
			if checked := Check(cfg.Path); name != "a log that is in use" && checked == nil {
				t.Error("Check accepts it")
			}
		})
	}
}

func TestAFileThatOthersCouldReadIsMadePrivate(t *testing.T) {
	cfg := config(t)
	must(t, os.WriteFile(cfg.Path, nil, 0o644))
	must(t, Check(cfg.Path))
	running(opened(t, cfg))()
	if info, _ := os.Stat(cfg.Path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v", info.Mode())
	}
}
