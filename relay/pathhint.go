package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"colabrelay/relay/hostconfig"
)

// pathHint is a line that says how to put the folder of the copy on PATH; empty if a
// shell finds colab-relay already. from is this program.
func pathHint(user hostconfig.User, from, installed string) string {
	folder := filepath.Dir(installed)
	if slices.Contains(filepath.SplitList(user.Getenv("PATH")), folder) {
		return ""
	}
	if found, err := exec.LookPath(commandName); err == nil && !(sameFile(found, from) && passing(user, from)) {
		return ""
	}
	if user.OS == "windows" {
		return fmt.Sprintf(`To call colab-relay in a terminal, run this in PowerShell once: [Environment]::SetEnvironmentVariable("Path", '%s;' + [Environment]::GetEnvironmentVariable("Path", "User"), "User")`+"\n", strings.ReplaceAll(folder, "'", "''"))
	}
	return fmt.Sprintf("To call colab-relay in a terminal, add this line to your shell's profile, such as ~/.profile: export PATH=%q\n", folder+":$PATH")
}

// passing reports whether a program will probably disappear: package runners put
// themselves on the PATH of what they run.
func passing(user hostconfig.User, path string) bool {
	for _, folder := range []string{user.Cache, filepath.Join(user.Home, ".cache"), os.TempDir()} {
		if strings.HasPrefix(path, folder+string(filepath.Separator)) {
			return true
		}
	}
	return slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "_npx")
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}
