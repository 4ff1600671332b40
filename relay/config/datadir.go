package config

import (
	"os"
	"path/filepath"
	"runtime"
)

// DataDir returns this user's folder for the data of programs, which survives the cleaning
// of caches: XDG_DATA_HOME or ~/.local/share on Linux (XDG Base Directory Specification),
// ~/Library/Application Support on macOS, %LOCALAPPDATA% on Windows. It creates nothing.
func DataDir() (string, error) {
	switch runtime.GOOS {
	case "darwin":
		return os.UserConfigDir()
	case "windows":
		return os.UserCacheDir() // %LOCALAPPDATA%, which Windows does not clean
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) { // the specification: ignore relative paths
		return dir, nil
	}
	return under(os.UserHomeDir, filepath.Join(".local", "share"))
}
