package kernelstate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// versionForm is a version's folder: its number, which decides what is newer whatever
// clocks say, and when it was saved, for people.
var versionForm = regexp.MustCompile(`^([0-9]{6})-[0-9]{8}T[0-9]{6}Z$`)

// dropped begins the name of a version on its way out.
const dropped = "dropped-"

// maxNames bounds Names.
const maxNames = 100

// version is one saved state in the folder of its name.
type version struct {
	name   string
	number int
}

// versions lists what is there, newest first.
func versions(folder string) ([]version, error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing saved versions: %w", err)
	}
	var all []version
	for _, e := range entries {
		if m := versionForm.FindStringSubmatch(e.Name()); m != nil && e.IsDir() {
			number, _ := strconv.Atoi(m[1]) // six digits
			all = append(all, version{e.Name(), number})
		}
	}
	slices.SortFunc(all, func(a, b version) int { return strings.Compare(b.name, a.name) })
	return all, nil
}

// nextVersion names the version after all that are there.
func nextVersion(all []version, at time.Time) string {
	number := 1
	if len(all) > 0 {
		number = all[0].number + 1
	}
	return fmt.Sprintf("%06d-%s", number, at.UTC().Format("20060102T150405Z"))
}

// matches reports whether a user's word for a version means this one: its whole name
// or its number.
func (v version) matches(word string) bool {
	number, err := strconv.Atoi(word)
	return v.name == word || err == nil && number == v.number
}

// prune drops the versions beyond the keep newest good ones. Each leaves its name
// first, so that one half removed is never taken for a version.
func (j *job) prune(keep int) error {
	all, err := versions(j.folder)
	if err != nil {
		return err
	}
	good := 0
	for _, v := range all {
		if good >= keep {
			if err := j.drop(v); err != nil {
				return err
			}
			continue
		}
		if _, err := readManifest(filepath.Join(j.folder, v.name)); err == nil {
			good++
		}
	}
	return j.removeDropped()
}

func (j *job) drop(v version) error {
	from, to := filepath.Join(j.folder, v.name), filepath.Join(j.folder, dropped+v.name)
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("dropping version %s: %w", v.name, err)
	}
	return nil
}

func (j *job) removeDropped() error {
	entries, err := os.ReadDir(j.folder)
	if err != nil {
		return fmt.Errorf("listing saved versions: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), dropped) {
			if err := os.RemoveAll(filepath.Join(j.folder, e.Name())); err != nil {
				return fmt.Errorf("dropping an old version: %w", err)
			}
		}
	}
	return nil
}

// choose finds the version to restore: the one asked for, or the newest good one, with
// a warning for each damaged one that was passed over.
func (j *job) choose(ctx context.Context, p *Progress) (Manifest, error) {
	all, err := versions(j.folder)
	if err != nil {
		return Manifest{}, err
	}
	if len(all) == 0 {
		return Manifest{}, fmt.Errorf("%q: %w", j.o.Name, ErrNotFound)
	}
	asked, last := j.o.Version != "", error(nil)
	for _, v := range all {
		if asked && !v.matches(j.o.Version) {
			continue
		}
		m, err := j.good(ctx, v)
		if err == nil || ctx.Err() != nil {
			return m, err
		}
		last = fmt.Errorf("version %s of %q: %w", v.name, j.o.Name, err)
		if !asked {
			p.warn("%v; an older version was taken, and the damaged one is left as it is", last)
		}
	}
	if last == nil {
		return Manifest{}, fmt.Errorf("%q of %q: %w; there are %s", j.o.Version, j.o.Name, ErrNoVersion, listing(all))
	}
	return Manifest{}, last
}

func listing(all []version) string {
	names := make([]string, 0, len(all))
	for _, v := range all {
		names = append(names, v.name)
	}
	return strings.Join(names, ", ")
}

// good reads a version's manifest and compares the digest of its data.
func (j *job) good(ctx context.Context, v version) (Manifest, error) {
	folder := filepath.Join(j.folder, v.name)
	m, err := readManifest(folder)
	if err != nil {
		return m, err
	}
	m.Version = v.name
	return m, checkData(ctx, filepath.Join(folder, dataFile), m.SHA256)
}

// checkData compares the SHA-256 of a file.
func checkData(ctx context.Context, path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return damaged("its data file can't be read")
	}
	defer f.Close()
	sum, buf := sha256.New(), make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		sum.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return damaged("its data file can't be read to the end")
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return damaged("the SHA-256 of its data file is not the one it was saved with")
	}
	return nil
}

// Names lists the states saved below dir, as the user named them, at most 100.
func Names(dir string) []string {
	names := []string{}
	for _, s := range newestStates(dir) {
		names = append(names, s.Name)
	}
	return names
}

// States are the newest versions of all states saved below dir for a runtime, the last
// saved first, at most 100. Their manifests were readable; their data was not looked at.
func States(dir, runtime string) []Manifest {
	var all []Manifest
	for _, m := range newestStates(dir) {
		if m.Runtime == runtime && m.Schema == schema {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b Manifest) int { return b.Created.Compare(a.Created) })
	return all
}

// newestStates has only a name, that of the folder, where no manifest can be read.
func newestStates(dir string) []Manifest {
	root := filepath.Join(dir, statesFolder)
	entries, _ := os.ReadDir(root)
	var found []Manifest
	for _, e := range entries {
		all, err := versions(filepath.Join(root, e.Name()))
		if err != nil || len(all) == 0 || len(found) == maxNames {
			continue
		}
		m, err := readManifest(filepath.Join(root, e.Name(), all[0].name))
		if err != nil {
			m = Manifest{Name: e.Name()}
		}
		found = append(found, m)
	}
	return found
}
