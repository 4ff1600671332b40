// Command packaging makes the files of a release from built programs: archives, wheels,
// npm packages, the bundle of Claude Desktop, extensions of other hosts, the cell and the
// notebook, a list of the modules inside, and SHA256SUMS.
//
// It must not build programs, use the network or depend on the time or the folder, so that
// equal programs give equal files. Each format has a function; its texts are in the
// folder of that name. Start reading at formats in this file.
package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

// artifact is one file of a release.
type artifact struct {
	name string
	data []byte
}

func (a artifact) sha256() string {
	sum := sha256.Sum256(a.data)
	return hex.EncodeToString(sum[:])
}

// format makes some files of a release.
type format struct {
	name string
	make func(*release) ([]artifact, error)
}

var formats = []format{
	{"programs of the cell", executors},
	{"archives", archives},
	{"wheels", wheels},
	{"npm packages", npmPackages},
	{"MCPB bundle", mcpBundle},
	{"Claude Code plugin", plugin},
	{"Gemini extensions", geminiExtensions},
	{"cell and notebook", cellAndNotebook},
	{"bill of materials", billOfMaterials},
}

func run(args []string, out io.Writer) error {
	var r release
	flags := flag.NewFlagSet("packaging", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "the version that the programs were built with, such as v1.2.3")
	flags.StringVar(&r.pack, "package", "", "name of the relay's packages")
	flags.StringVar(&r.executorPack, "executor-package", "", "name of the executor's packages")
	flags.StringVar(&r.releases, "releases", "", "URL of the folder that holds a folder for each version; empty: omit what needs it")
	programs := flags.String("programs", "", "folder with the programs, relay-OS-ARCH and executor-OS-ARCH")
	licence := flags.String("licence", "LICENSE", "file with the licence")
	dist := flags.String("dist", "", "folder for the release")
	if err := flags.Parse(args); err != nil {
		return err
	}
	err := r.load(*programs, *licence)
	if err != nil {
		return err
	}
	made, err := r.make(formats...)
	if err != nil {
		return err
	}
	for _, a := range made {
		if err := os.WriteFile(filepath.Join(*dist, a.name), a.data, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "%9d  %s\n", len(a.data), a.name)
	}
	return nil
}

// make returns all files of the release, with SHA256SUMS at the end.
func (r *release) make(formats ...format) ([]artifact, error) {
	var made []artifact
	for _, f := range formats {
		files, err := f.make(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		made = append(made, files...)
	}
	slices.SortFunc(made, func(a, b artifact) int { return cmp.Compare(a.name, b.name) })
	for i, a := range made[1:] {
		if a.name == made[i].name {
			return nil, errors.New("two files of the release have the name " + a.name)
		}
	}
	var sums []byte
	for _, a := range made {
		sums = fmt.Appendf(sums, "%s  %s\n", a.sha256(), a.name)
	}
	return append(made, artifact{"SHA256SUMS", sums}), nil
}
