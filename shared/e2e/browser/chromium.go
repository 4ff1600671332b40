package browser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"colabrelay/shared/e2e/harness"
)

// names are those of Chromium in the distributions.
var names = []string{"chromium", "chromium-browser", "google-chrome"}

// openWord is the first argument of a program that shall be Opener.
const openWord = "open-in-chromium"

// Chromium is a headless Chromium that is started by whatever opens a URL in the person's
// browser: the relay. A second URL opens a second tab in it.
type Chromium struct {
	Program string // what opens a URL, for the variable BROWSER

	dir     string
	profile string
}

// NewChromium returns a Chromium that is not started yet. It reaches colab and loopback and
// nothing else. The program that calls it must call Opener first.
func NewChromium(colab *Colab) (*Chromium, error) {
	program := ""
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		return nil, errors.New("there is no Chromium on PATH: shared/e2e/browser/setup.sh installs one")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		return nil, err
	}
	secure, plain := port(colab.Secure.URL), port(colab.Plain.URL)
	rules := fmt.Sprintf("MAP %[1]s:443 127.0.0.1:%[2]s, MAP %[1]s:80 127.0.0.1:%[3]s, MAP *.example:443 127.0.0.1:%[2]s, MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1", Host, secure, plain)
	c := &Chromium{Program: filepath.Join(dir, "open"), dir: dir, profile: filepath.Join(dir, "profile")}
	return c, writeScript(c.Program, []string{self, openWord, c.profile, program,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-dev-shm-usage", "--disable-features=HttpsUpgrades", "--remote-debugging-port=0", "--user-data-dir=" + c.profile,
		"--host-resolver-rules=" + rules, "--ignore-certificate-errors-spki-list=" + colab.KeyDigest,
	})
}

// Opener is what the program behind BROWSER does: it opens the URL that is the last argument,
// in the Chromium that runs, or else in one that it becomes. It reports whether the arguments
// ask for that; a headless Chromium that runs can't be told a URL in another way.
func Opener(args []string) (asked bool, err error) {
	if len(args) < 5 || args[1] != openWord {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	profile, command, address := args[2], args[3:], args[len(args)-1]
	if running, ok := devToolsAddress(profile); ok {
		if tools, err := dialDevTools(ctx, running); err == nil {
			defer tools.Close()
			return true, tools.call(ctx, "", "Target.createTarget", map[string]any{"url": address}, nil)
		}
	}
	return true, syscall.Exec(command[0], command, os.Environ())
}

// devToolsAddress returns where the browser of a profile is controlled.
func devToolsAddress(profile string) (address string, ok bool) {
	text, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
	port, path, whole := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return "ws://" + net.JoinHostPort("127.0.0.1", port) + path, err == nil && whole
}

func port(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // of a server that httptest started
	}
	return u.Port()
}

// Attach waits until something started the browser, and connects with it.
func (c *Chromium) Attach(ctx context.Context) (*DevTools, error) {
	address := ""
	err := harness.Poll(ctx, func() (started bool, _ error) {
		address, started = devToolsAddress(c.profile)
		return started, nil
	})
	if err != nil {
		return nil, fmt.Errorf("the browser was not started: %w", err)
	}
	return dialDevTools(ctx, address)
}

// Close ends the browser, if it runs, and removes its profile.
func (c *Chromium) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if target, err := os.Readlink(filepath.Join(c.profile, "SingletonLock")); err == nil { // HOST-PID
		pid, err := strconv.Atoi(target[strings.LastIndex(target, "-")+1:])
		if err != nil {
			return fmt.Errorf("read the browser's pid in %q: %w", target, err)
		}
		_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
	}
	var failed error
	err := harness.Poll(ctx, func() (bool, error) { // its processes still write for a moment
		failed = os.RemoveAll(c.dir)
		return failed == nil, nil
	})
	if err != nil {
		return errors.Join(err, failed)
	}
	return nil
}
