// Command packaging makes the files of a release from built programs: archives, wheels,
// npm packages, the bundle of Claude Desktop, extensions of other hosts, the cell and the
// notebook, a list of the modules inside, and SHA256SUMS.
//
// It must not build programs, use the network or depend on the time or the folder, so that
// equal programs give equal files. Each format has a function; its texts are in the
// folder of that name. Start reading at formats in this file.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	bootstrap "colabrelay/colab-bootstrap"
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

// command is the name of the relay's program in every package.
const command = "colab-relay"

// The platforms that a release is for, as GOOS-GOARCH. darwin-universal is made of the two
// programs for darwin.
var (
	linuxes        = []string{"linux-amd64", "linux-arm64"}
	relayPlatforms = []string{"linux-amd64", "linux-arm64", universal, "windows-amd64", "windows-arm64"}
)

const universal = "darwin-universal"

// release is what the formats need to know.
type release struct {
	version      string // of the programs, such as v1.2.3; version.sh has the others
	number       string // of the packages: the version without the v
	pack         string // name of the relay's packages
	executorPack string
	releases     string            // URL without a slash at the end, or ""
	relay        map[string][]byte // programs by platform
	executor     map[string][]byte
	built        []built
	licence      []byte // ours, and those of the modules in the programs
}

// built is a program as it was built, with what Go wrote into it.
type built struct {
	artifact
	info *buildinfo.BuildInfo
}

var (
	semantic    = regexp.MustCompile(`^v(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)$`)
	packageName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	// plainURL has no character that JSON, Python or a shell reads as more than itself.
	plainURL = regexp.MustCompile(`^https?://[A-Za-z0-9._:/~-]+$`)
)

// load checks the settings and reads the programs.
func (r *release) load(programs, licence string) error {
	for _, name := range []string{r.pack, r.executorPack} {
		if !packageName.MatchString(name) {
			return fmt.Errorf("package name %q: use lower-case words with dashes between them", name)
		}
	}
	r.releases = strings.TrimRight(r.releases, "/")
	if r.releases != "" && !plainURL.MatchString(r.releases) {
		return fmt.Errorf("release address %q: not a plain URL", r.releases)
	}
	if r.version == "" {
		return errors.New("no version: give one with -version, such as v1.2.3")
	}
	match := semantic.FindStringSubmatch(r.version)
	if match == nil {
		return fmt.Errorf("version %q: a release has three numbers, such as v1.2.3 or v1.2.3-rc.1", r.version)
	}
	r.number = match[1]
	var err error
	if r.licence, err = os.ReadFile(licence); err != nil {
		return err
	}
	read := func(into map[string][]byte, name, platform string) {
		file := name + "-" + platform + exe(platform)
		data, readErr := os.ReadFile(filepath.Join(programs, file))
		into[platform] = data
		info, infoErr := buildinfo.Read(bytes.NewReader(data))
		if failed := cmp.Or(readErr, infoErr); failed != nil {
			err = errors.Join(err, fmt.Errorf("the program %q: %w", file, failed))
			return
		}
		r.built = append(r.built, built{artifact{file, data}, info})
	}
	r.relay, r.executor = map[string][]byte{}, map[string][]byte{}
	for _, platform := range linuxes {
		read(r.executor, "executor", platform)
	}
	for _, platform := range []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64", "windows-amd64", "windows-arm64"} {
		read(r.relay, "relay", platform)
	}
	if err != nil {
		return err
	}
	others, err := thirdParty(r.built)
	if err != nil {
		return err
	}
	r.licence = append(r.licence, others...)
	r.relay[universal], err = fat(r.relay["darwin-amd64"], r.relay["darwin-arm64"])
	return err
}

// exe returns the ending of a program's name.
func exe(platform string) string {
	if strings.HasPrefix(platform, "windows-") {
		return ".exe"
	}
	return ""
}

// url returns the address of a file of this release.
func (r *release) url(file string) string { return r.releases + "/" + r.version + "/" + file }

// fill replaces the names in a text of the packages, such as @NUMBER@, and more pairs of a
// name and its value. @START@ says how to start the executor: a release without an address has
// no notebook.
func (r *release) fill(text string, more ...string) []byte {
	start := "unpack " + r.executorPack + "_" + r.number + "_linux_amd64.tar.gz on the VM and follow its README.txt"
	if r.releases != "" {
		page := bootstrap.Release{Releases: r.releases, Version: r.version}.Page()
		start = "open colab-relay.ipynb of the release (" + page + ") in Colab and run its cell"
	}
	pairs := append([]string{
		"@START@", start,
		"@NUMBER@", r.number, "@VERSION@", r.version, "@PACKAGE@", r.pack, "@EXECUTOR_PACKAGE@", r.executorPack, "@RELEASES@", r.releases,
	}, more...)
	return []byte(strings.NewReplacer(pairs...).Replace(text))
}

// executors returns the programs that the Colab cell downloads, under the names it asks
// for, and their licence.
func executors(r *release) ([]artifact, error) {
	files := []artifact{{"LICENSE", r.licence}}
	for _, platform := range linuxes {
		files = append(files, artifact{"executor-" + platform, r.executor[platform]})
	}
	return files, nil
}

// cellAndNotebook returns the Colab cell of this release, which needs no filling in.
func cellAndNotebook(r *release) ([]artifact, error) {
	if r.releases == "" {
		return nil, nil
	}
	source := bootstrap.Release{
		Releases: r.releases, Version: r.version,
		SHA256AMD64: artifact{data: r.executor["linux-amd64"]}.sha256(),
		SHA256ARM64: artifact{data: r.executor["linux-arm64"]}.sha256(),
	}
	cell, err := bootstrap.Cell(source)
	if err != nil {
		return nil, err
	}
	notebook, err := bootstrap.Notebook(source)
	return []artifact{{"cell.ipy", []byte(cell)}, {"colab-relay.ipynb", notebook}}, err
}
