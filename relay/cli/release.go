package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"net/url"
	"strings"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/bridge"
	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/pairing"
)

// Version is the version of this program, "dev" unless it is a release. Only main sets it.
var Version = "dev"

// Releases is the URL of the folder that contains a folder for each release. Only main sets
// it; it is empty in a build of one's own.
var Releases string

// releaseVariable names the folder that holds the files of a release. The cell on the VM
// reads the same variable.
const releaseVariable = "COLAB_RELAY_RELEASE_URL"

// ErrNotRelease is the error of a relay that belongs to no release.
var ErrNotRelease = fmt.Errorf("this relay is not a release, so it does not know which executor to copy to the machine: use a released relay, or set %s to the URL of a folder with SHA256SUMS and the executors", releaseVariable)

// NeedsExecutor adds to ErrNotRelease what a person who builds the programs can do.
func NeedsExecutor(err error) error {
	return fmt.Errorf("%w; or name an executor for Linux with --executor, as with bin/executor of `make build`", err)
}

// MaxSums bounds SHA256SUMS, in bytes.
const MaxSums = 64 << 10

func releaseFolder(getenv func(string) string) string {
	return strings.TrimRight(getenv(releaseVariable), "/")
}

// CheckRelease returns ErrNotRelease if no release is known; it fetches nothing.
func CheckRelease(getenv func(string) string) error {
	if releaseFolder(getenv) == "" && (Releases == "" || Version == "dev") {
		return ErrNotRelease
	}
	return nil
}

// executorRelease returns the release from which VMs fetch the executor: the one that
// COLAB_RELAY_RELEASE_URL names, else the relay's own. It fetches the digests, so it refuses
// a release without TLS unless that is on this computer.
func executorRelease(ctx context.Context, getenv func(string) string) (bootstrap.Release, error) {
	r := bootstrap.Release{Releases: Releases, Version: Version}
	if err := CheckRelease(getenv); err != nil {
		return r, err
	}
	if folder := releaseFolder(getenv); folder != "" {
		cut := strings.LastIndex(folder, "/")
		r.Releases, r.Version = folder[:max(cut, 0)], folder[cut+1:]
	}
	u, err := url.Parse(r.Releases)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && (u.Scheme != "http" || !pairing.OnLoopback(r.Releases)) {
		return r, fmt.Errorf("the release folder %q: use an https:// URL, so that nobody on the network path can change the digests", r.Releases+"/"+r.Version)
	}
	sums, err := FetchSums(ctx, r)
	if err == nil {
		err = ReadDigests(&r, sums)
	}
	if err != nil {
		return r, fmt.Errorf("the digests of release %q: %w", r.Version, err)
	}
	return r, nil
}

// FetchSums fetches the release's SHA256SUMS.
func FetchSums(ctx context.Context, r bootstrap.Release) ([]byte, error) {
	return client.ReleaseFile(ctx, r.Releases+"/"+r.Version+"/SHA256SUMS", MaxSums)
}

// ReadDigests sets the executors' digests, which SHA256SUMS must list for all processors.
func ReadDigests(r *bootstrap.Release, sums []byte) error {
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

// NewBridge returns what starts an executor on the VM of Colab's page. A caller must Close it
// before the page.
func NewBridge(set config.Settings, store *pairing.Store, log *slog.Logger) *bridge.Bridge {
	return bridge.New(bridge.Config{
		Release: func(ctx context.Context) (bootstrap.Release, error) { return executorRelease(ctx, set.Get) },
		Tunnel: func() (bridge.Tunnel, error) {
			token, domain, err := config.Ngrok(set)
			return bridge.Tunnel{Token: token, Domain: domain}, err
		},
		Store: store, Getenv: set.Get, Reach: reachExecutor, Log: log,
	})
}

// reachExecutor returns the instance id of the executor of r once a signed request has reached
// it. It tries until ctx ends.
func reachExecutor(ctx context.Context, r pairing.Runtime) (string, error) {
	vm, err := client.New(client.Config{BaseURL: r.URL, Secret: r.Secret})
	if err != nil {
		return "", err
	}
	defer vm.Close()
	if _, err := vm.SignedHealth(ctx); err != nil {
		return "", err
	}
	return vm.InstanceID(), nil
}
