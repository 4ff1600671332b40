package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/client"
	"colabrelay/shared/bounded"
)

// releases is where this build's releases are: the URL of a folder that holds a folder
// for each version. Set by the linker; empty in a build of one's own.
var releases string

// maxSums bounds SHA256SUMS, in bytes.
const maxSums = 64 << 10

// cellSource is which release the cell is for.
type cellSource struct {
	bootstrap.Release
	sums     string // a file; empty to fetch it from the release
	notebook bool
}

func bootstrapCommand(std streams) *cobra.Command {
	var s cellSource
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the Colab cell that fetches and starts the executor",
		Long: "Print the Colab cell that fetches and starts the executor, with the release's URL and digests filled in.\n" +
			"The digests come from the release's SHA256SUMS, fetched, or from a copy that --sums names.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.print(cmd.Context(), std) },
	}
	fs := cmd.Flags()
	fs.StringVar(&s.Version, "version", "", "the release (default this relay's own)")
	fs.StringVar(&s.Releases, "releases", releases, "URL of the folder that holds a folder for each version")
	fs.StringVar(&s.sums, "sums", "", "the release's SHA256SUMS as a file (- for stdin), in place of fetching it")
	fs.BoolVar(&s.notebook, "notebook", false, "print a notebook (.ipynb) that holds the cell")
	return cmd
}

func (s *cellSource) print(ctx context.Context, std streams) error {
	if s.Version == "" && version != "dev" {
		s.Version = version
	}
	switch {
	case s.Releases == "":
		return errors.New("where the releases are is not known to this build: give --releases URL")
	case s.Version == "":
		return errors.New("this relay is no release: give --version, such as v1.0.0")
	}
	s.Releases = strings.TrimRight(s.Releases, "/")
	sums, err := s.digests(ctx, std)
	if err != nil {
		return fmt.Errorf("the digests of release %q: %w", s.Version, err)
	}
	if err := s.ReadSums(bytes.NewReader(sums)); err != nil {
		return fmt.Errorf("the digests of release %q: %v", s.Version, err)
	}
	if cmp.Or(s.SHA256AMD64, s.SHA256ARM64) == "" {
		return fmt.Errorf("the digests of release %q: no executor is among them", s.Version)
	}
	text, err := s.text()
	if err != nil {
		return err
	}
	_, err = std.out.Write(text)
	return err
}

func (s *cellSource) text() ([]byte, error) {
	if s.notebook {
		return bootstrap.Notebook(s.Release)
	}
	cell, err := bootstrap.Cell(s.Release)
	return []byte(cell), err
}

// digests is SHA256SUMS. Fetched without TLS it proves nothing about who made the
// release, so that is said.
func (s *cellSource) digests(ctx context.Context, std streams) ([]byte, error) {
	switch s.sums {
	case "":
		if strings.HasPrefix(s.Releases, "http://") {
			fmt.Fprintln(std.err, "note: the digests come over http, where anybody on the way can change them; compare them with a copy you trust")
		}
		return client.ReleaseFile(ctx, s.Releases+"/"+s.Version+"/SHA256SUMS", maxSums)
	case "-":
		return bounded.ReadAll(std.in, maxSums)
	}
	return bounded.ReadFile(s.sums, maxSums)
}
