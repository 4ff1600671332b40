package browser

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
)

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
