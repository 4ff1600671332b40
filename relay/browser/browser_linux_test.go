package browser

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/within"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const target = "https://colab.research.google.com/notebooks/empty.ipynb?p=5#mcpProxyToken=SECRETTOKEN&mcpProxyPort=5"

// computer is a system whose programs are scripts in one folder.
type computer struct {
	system
	dir string
}

// newComputer returns a computer with no programs and no environment.
func newComputer(t *testing.T, goos string) *computer {
	t.Helper()
	c := &computer{dir: t.TempDir()}
	t.Setenv("PATH", c.dir)
	c.system = system{
		goos: goos, environ: []string{"LANG=C"},
		version: "Linux version 6.1.0 (gcc)", windows: filepath.Join(c.dir, "System32"), wait: within.Limit,
	}
	return c
}

// set sets variables of the environment.
func (c *computer) set(variables map[string]string) {
	for name, value := range variables {
		c.environ = append(c.environ, name+"="+value)
	}
}

// add adds a program that records its arguments and environment, and then does what a line
// of shell says.
func (c *computer) add(t *testing.T, name, then string) {
	t.Helper()
	path := filepath.Join(c.dir, name)
	script := fmt.Sprintf("#!/bin/sh\n{ printf '%%s\\n' \"$@\"; /usr/bin/env; } > %[1]s.new && /bin/mv %[1]s.new %[1]s.got\n%s\n", path, then)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
}

// got waits for what a program recorded: its arguments and environment, a line each.
func (c *computer) got(t *testing.T, name string) []string {
	t.Helper()
	var lines []string
	within.Until(t, name+" is started", func() bool {
		text, err := os.ReadFile(filepath.Join(c.dir, name+".got"))
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return err == nil
	})
	return lines
}

func (c *computer) started(name string) bool {
	_, err := os.Stat(filepath.Join(c.dir, name+".got"))
	return err == nil
}

// follow loads a link once as a browser does, and returns where it leads.
func follow(t *testing.T, link string) string {
	t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(link)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusFound {
		return answer.Status
	}
	return answer.Header.Get("Location")
}

// Each system's program gets the URL, or a link that leads to it.
func TestEachSystemsProgram(t *testing.T) {
	for name, c := range map[string]struct {
		goos, version string
		env           map[string]string
		programs      []string // that exist
		started       string   // the one that is expected
		arguments     []string // before the link or URL
		direct        bool
	}{
		"Linux":                    {goos: "linux", env: map[string]string{"DISPLAY": ":0"}, programs: []string{"xdg-open", "wslview", "open"}, started: "xdg-open"},
		"X over SSH":               {goos: "linux", env: map[string]string{"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "x"}, programs: []string{"xdg-open"}, started: "xdg-open"},
		"BROWSER with arguments":   {goos: "linux", env: map[string]string{"BROWSER": "none:firefox --new-window:xdg-open"}, programs: []string{"xdg-open", "firefox"}, started: "firefox", arguments: []string{"--new-window"}},
		"macOS":                    {goos: "darwin", env: map[string]string{"BROWSER": "xdg-open"}, programs: []string{"xdg-open", "open"}, started: "open"},
		"Windows":                  {goos: "windows", programs: []string{"rundll32"}, started: "rundll32", arguments: []string{fileProtocolHandler}, direct: true},
		"WSL by its socket":        {goos: "linux", env: map[string]string{"WSL_INTEROP": "/run/WSL/1_interop"}, programs: []string{"rundll32.exe"}, started: "rundll32.exe", arguments: []string{fileProtocolHandler}, direct: true},
		"WSL without Windows PATH": {goos: "linux", version: "4.4.0-19041-Microsoft", programs: []string{"System32/rundll32.exe", "wslview"}, started: "System32/rundll32.exe", arguments: []string{fileProtocolHandler}, direct: true},
		"a container in WSL":       {goos: "linux", version: "microsoft", env: map[string]string{"DISPLAY": ":0"}, programs: []string{"xdg-open"}, started: "xdg-open"},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			on := newComputer(t, c.goos)
			on.set(c.env)
			on.version = c.version
			for _, p := range c.programs {
				on.add(t, p, "")
			}
			done := make(chan error, 1)
			go func() { done <- on.open(t.Context(), target) }()
			got := on.got(t, c.started)
			for i, want := range c.arguments {
				if got[i] != want {
					t.Errorf("argument %d is %q, want %q", i, got[i], want)
				}
			}
			opened := got[len(c.arguments)]
			if !c.direct {
				if all := strings.Join(got, "\n"); strings.Contains(all, "SECRETTOKEN") || !strings.HasPrefix(opened, "http://127.0.0.1:") {
					t.Errorf("the program got %q", all)
				}
				opened = follow(t, opened)
			}
			if opened != target {
				t.Errorf("it opens %q", opened)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			for _, p := range c.programs {
				if p != c.started && on.started(p) {
					t.Errorf("%s was started, too", p)
				}
			}
		})
	}
}

func TestTheBrowserGetsNoSecrets(t *testing.T) {
	needed := []string{
		"HOME", "PATH", "LANG", "LC_ALL", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_SESSION_TYPE",
		"BROWSER", "https_proxy", "NO_PROXY", "WSL_INTEROP", "VSCODE_IPC_HOOK_CLI", "SystemRoot", "APPDATA", "ProgramFiles", "TMPDIR", "SECURITYSESSIONID",
	}
	secret := []string{
		"COLAB_SECRET", "NGROK_AUTHTOKEN", "RELAY_HOLD", "EXECUTOR_SECRET", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS",
		"CLOUDSDK_AUTH_ACCESS_TOKEN", "AZURE_CLIENT_SECRET", "GITHUB_TOKEN", "GH_TOKEN", "HF_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "KUBECONFIG", "VAULT_TOKEN",
		"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "DATABASE_URL", "PGPASSWORD", "LD_PRELOAD", "SECRET_OF_A_SHELL",
	}
	c := newComputer(t, "windows")
	c.add(t, "rundll32", "")
	for _, name := range slices.Concat(needed, secret) {
		if name != "PATH" {
			c.environ = append(c.environ, name+"=value of "+name)
		}
	}
	c.environ = append(c.environ, "PATH="+c.dir)
	if err := c.open(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	got := c.got(t, "rundll32")
	has := func(name string) bool {
		return slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, name+"=") })
	}
	for _, name := range needed {
		if !has(name) {
			t.Errorf("the browser lacks %s", name)
		}
	}
	for _, name := range secret {
		if has(name) {
			t.Errorf("the browser gets %s", name)
		}
	}
}

// A browser that runs in the foreground outlives the call, in a session of its own, and
// leaves no zombie when it ends.
func TestTheBrowserLivesOn(t *testing.T) {
	c := newComputer(t, "linux")
	c.set(map[string]string{"BROWSER": "browser"})
	stop := filepath.Join(c.dir, "stop")
	c.add(t, "browser", `echo $$ > `+c.dir+`/pid.new && /bin/mv `+c.dir+`/pid.new `+c.dir+`/pid.got; while ! [ -e `+stop+` ]; do /bin/sleep 0.02; done`)
	done := make(chan error, 1)
	go func() { done <- c.open(t.Context(), target) }()
	pid := c.got(t, "pid")[0]
	follow(t, c.got(t, "browser")[0])
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatalf("the browser ended with the call: %v", err)
	}
	if fields := strings.Fields(string(stat)); fields[5] != pid {
		t.Errorf("its session is %s, its process %s", fields[5], pid)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	within.Until(t, "the process of the browser, which ended, is gone", func() bool {
		_, err := os.Stat("/proc/" + pid)
		return os.IsNotExist(err)
	})
}

func TestFailures(t *testing.T) {
	screen := map[string]string{"DISPLAY": ":0"}
	for name, c := range map[string]struct {
		goos string
		env  map[string]string
		then string // what xdg-open does; "" for no such program
		want string
	}{
		"SSH":                  {goos: "linux", env: map[string]string{"SSH_CONNECTION": "a 1 b 2"}, want: "forward the relay's port"},
		"no program":           {goos: "linux", env: screen, want: `start "xdg-open": executable file not found in $PATH; open the URL yourself`},
		"the program fails":    {goos: "linux", env: screen, then: "exit 3", want: `"xdg-open" ended with exit status 3`},
		"nothing comes":        {goos: "linux", env: screen, then: "exit 0", want: `"xdg-open" was started, but no browser loaded the page within 0.3 s`},
		"WSL's interop is off": {goos: "linux", env: map[string]string{"WSL_INTEROP": "x"}, want: "this session has no screen"},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			on := newComputer(t, c.goos)
			on.set(c.env)
			if name == "nothing comes" {
				on.wait = 300 * time.Millisecond
			}
			if c.then != "" {
				on.add(t, "xdg-open", c.then)
			}
			err := on.open(t.Context(), target)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "SECRETTOKEN") {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestOnlyWebPagesAreOpened(t *testing.T) {
	c := newComputer(t, "linux")
	c.set(map[string]string{"BROWSER": "browser"})
	c.add(t, "browser", "")
	for _, address := range []string{
		"", "file:///etc/passwd", "javascript:alert(1)", "--help", "/etc/passwd", "C:\\x", "vscode://x/y", "https:", "https:///x", "https://user@host/",
		"https://host/a b", "https://host/\n", "https://host/\"x", "https://host/'x", "https://höst/", "https://host/" + strings.Repeat("a", maxURL),
	} {
		if err := c.open(t.Context(), address); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.40q: %v", address, err)
		}
	}
	if c.started("browser") {
		t.Error("the browser was started")
	}
}

// Strangers on loopback, who do not know the path, get nothing and can't stop the browser.
func TestStrangersAtTheLink(t *testing.T) {
	l := &link{target: target, path: "/secret", loaded: make(chan struct{})}
	host, stop, err := Serve(l)
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ method, path, host string }{
		"another path": {http.MethodGet, "/x", host},
		"another host": {http.MethodGet, l.path, "evil.example"},
		"POST":         {http.MethodPost, l.path, host},
	} {
		request, err := http.NewRequest(c.method, "http://"+host+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = c.host
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusNotFound || strings.Contains(fmt.Sprint(answer.Header), "SECRETTOKEN") {
			t.Errorf("%s: %d %s", name, answer.StatusCode, answer.Header)
		}
	}
	if got := follow(t, "http://"+host+l.path); got != target {
		t.Errorf("the link leads to %q", got)
	}
	if got := follow(t, "http://"+host+l.path); !strings.HasPrefix(got, "404") {
		t.Errorf("the second time the link leads to %q", got)
	}
	<-l.loaded
	silent.Close()
	stop()
	if got := follow(t, "http://"+host+l.path); !strings.Contains(got, "refused") {
		t.Errorf("after its end the link leads to %q", got)
	}
}

func TestTheScreenOfAnAncestorIsUsed(t *testing.T) {
	desktop := []string{"HOME=/other", "DISPLAY=:1", "XAUTHORITY=/run/x", "SECRET=x", "XDG_RUNTIME_DIR=/run/user/7"}
	for name, c := range map[string]struct {
		own       []string
		ancestors [][]string
		want      []string
	}{
		"the parent's":         {[]string{"HOME=/me"}, [][]string{desktop}, []string{"HOME=/me", "DISPLAY=:1", "XAUTHORITY=/run/x", "XDG_RUNTIME_DIR=/run/user/7"}},
		"a grandparent's":      {[]string{"DISPLAY="}, [][]string{{"HOME=/me"}, {"WAYLAND_DISPLAY=w"}, desktop}, []string{"DISPLAY=", "WAYLAND_DISPLAY=w"}},
		"an own value is kept": {[]string{"XAUTHORITY=/mine"}, [][]string{{"DISPLAY=:1", "XAUTHORITY=/run/x"}}, []string{"XAUTHORITY=/mine", "DISPLAY=:1"}},
		"a session over SSH":   {nil, [][]string{{"SSH_CONNECTION=a"}, desktop}, []string{"SSH_CONNECTION=a"}},
	} {
		if got := withSession(c.own, slices.Values(c.ancestors)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
