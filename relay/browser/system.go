package browser

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
)

// way is how a system opens a URL: with the first of these programs that works.
type way struct {
	programs []program
	direct   bool // they get the URL itself; else a link to it
}

const fileProtocolHandler = "url.dll,FileProtocolHandler"

// errNoScreen says that no browser of this computer has a screen that the person sees.
var errNoScreen = errors.New("this session has no screen, because it runs over SSH or neither DISPLAY nor WAYLAND_DISPLAY is set: open the URL yourself; if your browser is on another computer, forward the relay's port from there with `ssh -L`")

// way returns how this system opens a URL.
func (s system) way() (way, error) {
	display := s.getenv("DISPLAY") != "" || s.getenv("WAYLAND_DISPLAY") != ""
	wsl, chosen := s.isWSL(), fromBrowser(s.getenv("BROWSER"))
	switch {
	case s.isUnix() && len(chosen) > 0: // which may lead to another computer's screen, as in VS Code
		return way{chosen, wsl}, nil
	case s.remote() && !display:
		return way{}, errNoScreen
	case s.goos == "windows":
		return way{[]program{{"rundll32", fileProtocolHandler}}, true}, nil
	case s.goos == "darwin":
		return way{[]program{{"open"}}, false}, nil
	}
	if programs := s.ofWindows(); wsl && len(programs) > 0 {
		return way{programs, true}, nil
	}
	if !display {
		return way{}, errNoScreen
	}
	return way{[]program{{"xdg-open"}}, false}, nil
}

// isUnix reports whether the system opens URLs as Linux does.
func (s system) isUnix() bool { return s.goos != "windows" && s.goos != "darwin" }

// remote reports whether the person sits at another computer. There is a screen on macOS
// and Windows then, but it is not theirs.
func (s system) remote() bool { return s.getenv("SSH_CONNECTION") != "" || s.getenv("SSH_TTY") != "" }

// fromBrowser reads BROWSER as xdg-open does: commands that are separated by colons, each
// with its arguments, where "%s" stands for the URL.
func fromBrowser(text string) (programs []program) {
	for command := range strings.SplitSeq(text, ":") {
		if words := strings.Fields(command); len(words) > 0 {
			programs = append(programs, words)
		}
	}
	return programs
}

// isWSL reports whether Windows runs this Linux. A host may start the relay without the
// variables; a container in WSL has its kernel without Windows' programs, which ofWindows
// notices.
func (s system) isWSL() bool {
	return s.goos == "linux" && (s.getenv("WSL_DISTRO_NAME") != "" || s.getenv("WSL_INTEROP") != "" ||
		strings.Contains(strings.ToLower(s.version()), "microsoft"))
}

// ofWindows returns the programs that open a URL in Windows' browser. `cmd.exe /c start` is
// none of them: it cuts a URL at its first "&".
func (s system) ofWindows() (programs []program) {
	for _, p := range []program{
		{"rundll32.exe", fileProtocolHandler},
		{filepath.Join(s.windows, "rundll32.exe"), fileProtocolHandler}, // where /etc/wsl.conf keeps Windows' PATH out
		{"wslview"},
	} {
		if _, err := exec.LookPath(p[0]); err == nil {
			programs = append(programs, p)
		}
	}
	return programs
}
