package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/client"
)

// releases is the URL of the folder that contains a folder for each release. The linker
// sets it; it is empty in a build of one's own.
var releases string

// releaseVariable names the folder that holds the files of a release. The cell on the VM
// reads the same variable.
const releaseVariable = "COLAB_RELAY_RELEASE_URL"

// errNotRelease is the error of a relay that belongs to no release.
var errNotRelease = fmt.Errorf("this relay is not a release, so it does not know which executor the VM should fetch: use a released relay, or set %s to the URL of a folder with SHA256SUMS and the executors", releaseVariable)

// maxSums bounds SHA256SUMS, in bytes.
const maxSums = 64 << 10

// executorRelease returns the release from which VMs fetch the executor: the one that
// COLAB_RELAY_RELEASE_URL names, else the relay's own. It fetches the digests, so it refuses
// a release without TLS unless that is on this computer.
func executorRelease(ctx context.Context, getenv func(string) string) (bootstrap.Release, error) {
	r := bootstrap.Release{Releases: releases, Version: version}
	if folder := strings.TrimRight(getenv(releaseVariable), "/"); folder != "" {
		cut := strings.LastIndex(folder, "/")
		r.Releases, r.Version = folder[:max(cut, 0)], folder[cut+1:]
	} else if releases == "" || version == "dev" {
		return r, errNotRelease
	}
	u, err := url.Parse(r.Releases)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && (u.Scheme != "http" || !onLoopback(u)) {
		return r, fmt.Errorf("the release folder %q: use an https:// URL, so that nobody on the network path can change the digests", r.Releases+"/"+r.Version)
	}
	sums, err := fetchSums(ctx, r)
	if err == nil {
		err = readDigests(&r, sums)
	}
	if err != nil {
		return r, fmt.Errorf("the digests of release %q: %w", r.Version, err)
	}
	return r, nil
}

// onLoopback reports whether u is an address of this computer.
func onLoopback(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// fetchSums fetches the release's SHA256SUMS.
func fetchSums(ctx context.Context, r bootstrap.Release) ([]byte, error) {
	return client.ReleaseFile(ctx, r.Releases+"/"+r.Version+"/SHA256SUMS", maxSums)
}

// readDigests sets the executors' digests, which SHA256SUMS must list for all processors.
func readDigests(r *bootstrap.Release, sums []byte) error {
	if err := r.ReadSums(bytes.NewReader(sums)); err != nil {
		return err
	}
	switch {
	case r.SHA256AMD64 == "" && r.SHA256ARM64 == "":
		return errors.New("SHA256SUMS lists no executor")
	case r.SHA256AMD64 == "":
		return errors.New("SHA256SUMS lists no executor-linux-amd64")
	case r.SHA256ARM64 == "":
		return errors.New("SHA256SUMS lists no executor-linux-arm64")
	}
	return nil
}
