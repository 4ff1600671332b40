// Package browser opens a URL in the person's browser, on Linux, macOS, Windows and Windows
// Subsystem for Linux (WSL).
//
// The URLs hold a token, and a program's arguments are no place for one: on Linux and macOS
// every user of the computer can list them (/proc, ps), and a browser that was started with
// a URL keeps it there for its life. There, the program gets a link to this process instead:
// a random path on loopback that works once and leads on to the URL. Who lists the arguments
// may still load that link before the browser does, in the moment in which the browser
// starts; the person then sees that it failed. On Windows only the user and administrators
// can read arguments, and so it is in WSL, which usually has one user and cannot count on
// Windows' browser reaching a port at once: there, the program gets the URL itself.
//
// Errors never contain the URL. Start reading at Open.
package browser

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"colabrelay/relay/environ"
)

const (
	// maxURL bounds a URL, in bytes: a command line of Windows has 32,767 characters.
	maxURL = 8 << 10
	// loadTime is how long a browser may take from its start until it loads the link. The
	// first start of a packaged Firefox on a slow laptop takes about 20 s.
	loadTime = 25 * time.Second
)

// Open opens an http or https URL in the person's browser. On Linux and macOS it returns
// when the browser has loaded the link that leads to the URL, or an error after 25 s; on
// Windows and WSL as soon as the browser was asked to open it. It does not wait for the end
// of the browser, which goes on when this process ends. An error says what to do; the caller
// still has to show the URL, because people open it by hand then.
func Open(ctx context.Context, address string) error {
	return system{goos: runtime.GOOS, environ: withSession(os.Environ(), ancestors()), version: kernelVersion, windows: windowsFolder, wait: loadTime}.open(ctx, address)
}

// system is what decides how a browser is opened.
type system struct {
	goos    string
	environ []string
	version func() string // of the kernel, as /proc/version has it
	windows string        // where WSL has Windows' own programs
	wait    time.Duration // how long a browser may take to load the link
}

const windowsFolder = "/mnt/c/Windows/System32"

func (s system) getenv(name string) string { return lookUp(s.environ, name) }

func kernelVersion() string {
	text, _ := os.ReadFile("/proc/version") // there is none on other systems
	return string(text)
}

func (s system) open(ctx context.Context, address string) error {
	if err := check(address); err != nil {
		return err
	}
	way, err := s.way()
	if err != nil {
		return fmt.Errorf("open a browser: %w", err)
	}
	if way.direct {
		return s.startFirst(way.programs, address)
	}
	return s.openByLink(ctx, way.programs, address)
}

// check refuses what is no URL of a web page: the systems' programs open files and start
// programs, too.
func check(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil || strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'`\\<>^|", r) }):
		return errors.New("open a browser: this is not the URL of a web page")
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("open a browser: the URL begins with %.20q: only http and https are opened", u.Scheme+":")
	case len(address) > maxURL:
		return fmt.Errorf("open a browser: the URL has %d bytes, more than %d", len(address), maxURL)
	}
	return nil
}

// program is a program that opens a URL, with the arguments before it. A "%s" in an argument
// stands for the URL.
type program []string

// arguments returns the command line that opens a URL.
func (p program) arguments(address string) []string {
	args, placed := make([]string, len(p)), false
	for i, word := range p {
		args[i] = strings.ReplaceAll(word, "%s", address)
		placed = placed || args[i] != word
	}
	if !placed {
		args = append(args, address)
	}
	return args
}

// start starts the program and returns a channel that receives its end.
func (s system) start(p program, address string) (<-chan error, error) {
	args := p.arguments(address)
	cmd := exec.Command(args[0], args[1:]...) // without a context: the browser outlives the call
	cmd.Env = environ.Only(s.environ, environ.Basic, environ.Proxies, screenVariables, desktopVariables, lookVariables)
	detach(cmd)
	if err := cmd.Start(); err != nil {
		if failed, ok := errors.AsType[*exec.Error](err); ok {
			err = failed.Err
		}
		return nil, fmt.Errorf("start %q: %w", p[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // as long as the program runs: nobody else collects its exit code
	return ended, nil
}

// startFirst starts the first program that can be started. Its exit code is not read:
// rundll32 has none.
func (s system) startFirst(programs []program, address string) error {
	var failed []error
	for _, p := range programs {
		_, err := s.start(p, address)
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return fmt.Errorf("open a browser: %w", errors.Join(failed...))
}
