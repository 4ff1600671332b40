package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	bootstrap "colabrelay/colab-bootstrap"
	"colabrelay/relay/terminal"
	"colabrelay/shared/bounded"
)

// cellSource describes the release that the cell fetches.
type cellSource struct {
	bootstrap.Release
	sums     string // file with the digests; empty to fetch them from the release
	notebook bool
}

func bootstrapCommand(std terminal.Streams) *cobra.Command {
	var s cellSource
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print the Colab cell that fetches and starts the executor",
		Long: "Print the Colab cell that fetches and starts the executor, with the release's URL and digests filled in.\n" +
			"The digests are read from the release's SHA256SUMS, which is fetched unless --sums names a copy.",
		Example: "  colab-relay bootstrap\n  colab-relay bootstrap --notebook > colab-relay.ipynb",
		Args:    arguments(0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.print(cmd.Context(), std) },
	}
	fs := cmd.Flags()
	fs.StringVar(&s.Version, "version", "", "the release `VERSION` (default: this relay's own)")
	fs.StringVar(&s.Releases, "releases", releases, "`URL` of the folder that contains a folder for each release")
	fs.StringVar(&s.sums, "sums", "", "read the release's SHA256SUMS from this `FILE` (- for stdin) instead of fetching it")
	fs.BoolVar(&s.notebook, "notebook", false, "print a notebook (.ipynb) that contains the cell")
	return cmd
}

func (s *cellSource) print(ctx context.Context, std terminal.Streams) error {
	if s.Version == "" && version != "dev" {
		s.Version = version
	}
	switch {
	case s.Releases == "":
		return errors.New("this build does not know where the releases are: give --releases URL")
	case s.Version == "":
		return errors.New("this relay is not a release: give a version with --version, such as v1.0.0")
	}
	s.Releases = strings.TrimRight(s.Releases, "/")
	sums, err := s.digests(ctx, std)
	if err == nil {
		err = readDigests(&s.Release, sums)
	}
	if err != nil {
		return fmt.Errorf("the digests of release %q: %w", s.Version, err)
	}
	text, err := s.text()
	if err != nil {
		return err
	}
	_, err = std.Out.Write(text)
	return err
}

func (s *cellSource) text() ([]byte, error) {
	if s.notebook {
		return bootstrap.Notebook(s.Release)
	}
	cell, err := bootstrap.Cell(s.Release)
	return []byte(cell), err
}

// digests returns the content of SHA256SUMS. It warns if SHA256SUMS is fetched without
// TLS, because then it proves nothing about who made the release.
func (s *cellSource) digests(ctx context.Context, std terminal.Streams) ([]byte, error) {
	switch s.sums {
	case "":
		if strings.HasPrefix(s.Releases, "http://") {
			fmt.Fprintln(std.Err, "note: the digests are fetched over http, so anyone on the network path can change them; compare them with a copy that you trust")
		}
		return fetchSums(ctx, s.Release)
	case "-":
		return bounded.ReadAll(std.In, maxSums)
	}
	return bounded.ReadInput(s.sums, maxSums)
}
