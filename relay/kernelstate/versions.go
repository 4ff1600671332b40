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
	"slices"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/lazy"
)

// versionForm is the name of a version's folder: a number, which orders the versions
// independently of clocks, and the time of the save, for people.
var versionForm = lazy.Regexp(`^[0-9]{6}-[0-9]{8}T[0-9]{6}Z$`)

// versions lists the names of the versions in folder, newest first.
func versions(folder string) (all []string, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing saved versions: %w", err)
	}
	for _, e := range slices.Backward(entries) { // which are sorted by name
		if versionForm().MatchString(e.Name()) && e.IsDir() {
			all = append(all, e.Name())
		}
	}
	return all, nil
}

// nextVersion returns the name of a version that follows all.
func nextVersion(all []string, at time.Time) string {
	number := 1
	if len(all) > 0 {
		newest, _ := strconv.Atoi(all[0][:6])
		number = newest + 1
	}
	return fmt.Sprintf("%06d-%s", number, at.UTC().Format("20060102T150405Z"))
}

// matches reports whether requested is a version's name or number.
func matches(version, requested string) bool {
	number, err := strconv.Atoi(requested)
	return version == requested || err == nil && strings.HasPrefix(version, fmt.Sprintf("%06d-", number))
}

// prune deletes all versions except the newest good ones, keep of them, and the damaged
// ones between those. A deletion that a kill cuts short leaves a damaged version, which the next one
// deletes.
func (j *job) prune(keep int) error {
	all, err := versions(j.folder)
	if err != nil {
		return err
	}
	good := 0
	for _, v := range all {
		folder := filepath.Join(j.folder, v)
		if good >= keep {
			if err := os.RemoveAll(folder); err != nil {
				return fmt.Errorf("deleting version %s: %w", v, err)
			}
		} else if _, err := readManifest(folder); err == nil {
			good++
		}
	}
	return nil
}

// choose returns the version to restore: the requested one, or the newest good one. It
// warns of each damaged version that it skips.
func (j *job) choose(ctx context.Context, p *Progress) (Manifest, error) {
	all, err := versions(j.folder)
	if err != nil {
		return Manifest{}, err
	}
	if len(all) == 0 {
		return Manifest{}, fmt.Errorf("%q: %w", j.o.Name, ErrNotFound)
	}
	requested, last := j.o.Version != "", error(nil)
	for _, v := range all {
		if requested && !matches(v, j.o.Version) {
			continue
		}
		m, err := j.good(ctx, v)
		if err == nil || ctx.Err() != nil {
			return m, err
		}
		last = fmt.Errorf("version %s of %q: %w", v, j.o.Name, err)
		if !requested {
			p.warn("%v; an older version was used instead, and the damaged one was not changed", last)
		}
	}
	if last == nil {
		return Manifest{}, fmt.Errorf("%q of %q: %w; the versions are %s", j.o.Version, j.o.Name, ErrNoVersion, strings.Join(all, ", "))
	}
	return Manifest{}, last
}

// good reads a version's manifest and compares the digest of its data.
func (j *job) good(ctx context.Context, v string) (Manifest, error) {
	folder := filepath.Join(j.folder, v)
	m, err := readManifest(folder)
	if err != nil {
		return m, err
	}
	m.Version = v
	return m, checkData(ctx, filepath.Join(folder, dataFile), m.SHA256)
}

// checkData reports a file whose SHA-256 is not want as damaged.
func checkData(ctx context.Context, path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return damaged("its data file can't be read")
	}
	defer f.Close()
	sum := sha256.New()
	for err == nil && ctx.Err() == nil {
		_, err = io.CopyN(sum, f, 1<<20)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != io.EOF:
		return damaged("its data file can't be read completely")
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return damaged("the SHA-256 of its data file is not the one that the manifest records")
	}
	return nil
}
