package main

import _ "embed"

//go:embed bundle/colab-relay.sh
var bundleLauncher string

// bundle returns the programs of all platforms in a folder, for packages that can't name
// one for each processor. There, colab-relay is a script on macOS and Linux; Windows adds
// .exe to that name. Windows on arm64 runs the program for amd64.
func (r *release) bundle(folder string) []entry {
	return []entry{
		program(folder+"/colab-relay", r.fill(bundleLauncher)),
		program(folder+"/colab-relay-linux-amd64", r.relay["linux-amd64"]),
		program(folder+"/colab-relay-linux-arm64", r.relay["linux-arm64"]),
		program(folder+"/colab-relay-macos", r.relay[universal]),
		program(folder+"/colab-relay.exe", r.relay["windows-amd64"]),
	}
}
