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
// Errors never contain the URL. github.com/cli/browser gives the program all variables and the
// URL itself, and waits for its end. Start reading at Open.
package browser

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"colabrelay/relay/environ"
)

const (
	// maxURL bounds a URL, in bytes: a command line of Windows has 32,767 characters.
	maxURL = 8 << 10
	// loadTime is how long a browser may take from its start until it loads the link. The
	// first start of a packaged Firefox on a slow laptop takes about 20 s.
	loadTime = 25 * time.Second
	// windowsFolder is where WSL has Windows' own programs.
	windowsFolder = "/mnt/c/Windows/System32"

	fileProtocolHandler = "url.dll,FileProtocolHandler"
)

// errNoScreen says that no browser of this computer has a screen that the person sees.
var errNoScreen = errors.New("open a browser: this session has no screen, because it runs over SSH or neither DISPLAY nor WAYLAND_DISPLAY is set: open the URL yourself; if your browser is on another computer, forward the relay's port from there with `ssh -L`")

// Open opens an http or https URL in the person's browser. On Linux and macOS it returns
// when the browser has loaded the link that leads to the URL, or an error after 25 s; on
// Windows and WSL as soon as the browser was asked to open it. It does not wait for the end
// of the browser, which goes on when this process ends. An error says what to do; the caller
// still has to show the URL, because people open it by hand then.
func Open(ctx context.Context, address string) error {
	version, _ := os.ReadFile("/proc/version") // there is none on other systems
	return system{goos: runtime.GOOS, environ: withSession(os.Environ(), ancestors()), version: string(version), windows: windowsFolder, wait: loadTime}.open(ctx, address)
}

// system is what decides how a browser is opened.
type system struct {
	goos    string
	environ []string
	version string // of the kernel, as /proc/version has it
	windows string
	wait    time.Duration // how long a browser may take to load the link
}

func (s system) open(ctx context.Context, address string) error {
	if err := check(address); err != nil {
		return err
	}
	programs, direct := s.programs()
	if len(programs) == 0 {
		return errNoScreen
	}
	var failed []error
	for _, p := range programs {
		var err error
		if direct {
			_, err = s.start(p, address) // its exit code is not read: rundll32 has none
		} else {
			err = s.load(ctx, p, address)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		failed = append(failed, err)
	}
	return fmt.Errorf("open a browser: %w; open the URL yourself", errors.Join(failed...))
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

// programs returns what opens a URL on this system, in the order of trial, and whether that gets
// the URL itself. There is none if no browser has a screen that the person sees.
func (s system) programs() (all []program, direct bool) {
	getenv := func(name string) string { return lookUp(s.environ, name) }
	isUnix := s.goos != "windows" && s.goos != "darwin"
	// A host may start the relay without the variables. A container in WSL has its kernel, and none
	// of Windows' programs.
	wsl := s.goos == "linux" && (getenv("WSL_DISTRO_NAME") != "" || getenv("WSL_INTEROP") != "" || strings.Contains(strings.ToLower(s.version), "microsoft"))
	for command := range strings.SplitSeq(getenv("BROWSER"), ":") { // as xdg-open reads it
		if words := strings.Fields(command); isUnix && len(words) > 0 {
			all = append(all, words) // which may lead to another computer's screen, as in VS Code
		}
	}
	display := getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != ""
	remote := getenv("SSH_CONNECTION") != "" || getenv("SSH_TTY") != "" // a screen of macOS or Windows is not the person's then
	switch {
	case len(all) > 0:
		return all, wsl
	case remote && !display:
		return nil, false
	case s.goos == "windows":
		return []program{{"rundll32", fileProtocolHandler}}, true
	case s.goos == "darwin":
		return []program{{"open"}}, false
	}
	for _, p := range []program{ // not `cmd.exe /c start`, which cuts a URL at its first "&"
		{"rundll32.exe", fileProtocolHandler},
		{filepath.Join(s.windows, "rundll32.exe"), fileProtocolHandler}, // where /etc/wsl.conf keeps Windows' PATH out
		{"wslview"},
	} {
		if _, err := exec.LookPath(p[0]); err == nil && wsl {
			all = append(all, p)
		}
	}
	if len(all) == 0 && display {
		return []program{{"xdg-open"}}, false
	}
	return all, true
}

// start starts the program and returns a channel that receives its end.
func (s system) start(p program, address string) (<-chan error, error) {
	line := slices.Clone(p)
	for i, word := range p {
		line[i] = strings.ReplaceAll(word, "%s", address)
	}
	if slices.Equal(line, p) {
		line = append(line, address)
	}
	cmd := exec.Command(line[0], line[1:]...) // without a context: the browser outlives the call
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

const (
	// connectionTime is how long a connection to Serve may last, from its first byte to its last: any
	// program of this computer may connect.
	connectionTime = 2 * time.Second
	// maxConns bounds the connections; further ones wait in the system's queue until one ends.
	maxConns = 16
)

// Serve answers the requests of the person's browser on a free port of loopback until stop, which
// leaves an answer under way the time to arrive. A request for another host is refused: a page that
// rebinds its DNS name sends it.
func Serve(h http.Handler) (host string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen on this computer: %w", err)
	}
	host = l.Addr().String()
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != host {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
	server := http.Server{Handler: own, MaxHeaderBytes: 16 << 10, ReadTimeout: connectionTime, WriteTimeout: connectionTime, ErrorLog: log.New(io.Discard, "", 0)} // strangers could fill a log
	server.SetKeepAlivesEnabled(false)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(netutil.LimitListener(l, maxConns)) })
	return host, func() {
		ctx, cancel := context.WithTimeout(context.Background(), connectionTime)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		served.Wait()
	}, nil
}

// link is a URL on loopback that leads on to another one, once.
type link struct {
	target, path string
	used         atomic.Bool
	loaded       chan struct{} // closed when a browser has loaded the link
}

// ServeHTTP leads the first request for the link to the target, and no other one.
func (l *link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != l.path || l.used.Swap(true) {
		http.Error(w, "There is nothing here, or this link was used before: a link works once. Close this tab and open the page again.", http.StatusNotFound)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", l.target)
	w.WriteHeader(http.StatusFound)
	close(l.loaded)
}

// load starts a program with a link to address and waits until a browser has loaded the link.
func (s system) load(ctx context.Context, p program, address string) error {
	l := &link{target: address, path: "/" + rand.Text(), loaded: make(chan struct{})}
	host, stop, err := Serve(l)
	if err != nil {
		return err
	}
	defer stop()
	ended, err := s.start(p, "http://"+host+l.path)
	if err != nil {
		return err
	}
	late := time.After(s.wait)
	for {
		select {
		case <-l.loaded:
			return nil
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("%q ended with %w", p[0], err)
			}
			ended = nil // it told a browser that runs, or another program, which starts one
		case <-late:
			return fmt.Errorf("%q was started, but no browser loaded the page within %g s", p[0], s.wait.Seconds())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Variables of a desktop session. The first ones say where the person's screen is; the others
// are what xdg-open and browsers need there.
var (
	screenVariables  = []string{"BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "WSL_INTEROP", "SSH_CONNECTION", "SSH_TTY"}
	desktopVariables = []string{"DBUS_SESSION_BUS_ADDRESS", "DESKTOP_SESSION", "XAUTHORITY", "XDG_CURRENT_DESKTOP", "XDG_DATA_DIRS", "XDG_RUNTIME_DIR", "XDG_SESSION_TYPE"}
)

// lookVariables are what a browser has besides: the kind and the look of the desktop, and the ways
// of WSL and VS Code to the browser of another computer.
var lookVariables = []string{
	"GNOME_DESKTOP_SESSION_ID", "KDE_FULL_SESSION", "KDE_SESSION_VERSION", "MATE_DESKTOP_SESSION_ID", "SESSION_MANAGER",
	"GDK_*", "GTK_*", "QT_*", "XCURSOR_*", "XMODIFIERS", "MOZ_*", "SECURITYSESSIONID", "__CF_USER_TEXT_ENCODING",
	"WSLENV", "VSCODE_IPC_HOOK_CLI",
}

// withSession returns an environment that leads to the person's screen, if that is known: its
// own, or else with the variables of the nearest ancestor that has them. MCP hosts that use
// the official SDK start the relay with HOME, PATH and little else.
func withSession(own []string, ancestors iter.Seq[[]string]) []string {
	if hasScreen(own) {
		return own
	}
	for environment := range ancestors {
		if !hasScreen(environment) {
			continue
		}
		all := slices.Clone(own)
		for _, name := range slices.Concat(screenVariables, desktopVariables) {
			if value := lookUp(environment, name); value != "" && lookUp(own, name) == "" {
				all = append(all, name+"="+value)
			}
		}
		return all
	}
	return own
}

func hasScreen(environment []string) bool {
	return slices.ContainsFunc(screenVariables, func(name string) bool { return lookUp(environment, name) != "" })
}

// lookUp returns a variable of an environment.
func lookUp(environment []string, name string) string {
	for _, entry := range slices.Backward(environment) { // the last one counts
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// ancestors returns the environments with which this process's ancestors were started, the
// parent's first, as far as this user may read them. Only Linux shows them in files.
func ancestors() iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for pid := os.Getppid(); pid > 1; pid = parentOf(pid) {
			environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err == nil && !yield(strings.Split(string(environment), "\x00")) {
				return
			}
		}
	}
}

// parentOf returns the parent of a process, 0 if it is not known.
func parentOf(pid int) (parent int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	var state string
	_, _ = fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent) // the name before may have any character
	return parent
}
