// The fill command makes the Colab cell of a release: it reads SHA256SUMS on
// stdin and writes the cell to paste on stdout.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	bootstrap "colabrelay/colab-bootstrap"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fill:", err)
		os.Exit(1)
	}
}

func run(args []string, sums io.Reader, cell io.Writer) error {
	var r bootstrap.Release
	flags := flag.NewFlagSet("fill", flag.ContinueOnError)
	flags.StringVar(&r.Releases, "releases", "", "URL of the folder that holds a folder for each version")
	flags.StringVar(&r.Version, "version", "", "the release's version")
	if err := flags.Parse(args); err != nil {
		return err
	}
	digests, err := read(sums)
	if err != nil {
		return err
	}
	r.SHA256AMD64, r.SHA256ARM64 = digests["executor-linux-amd64"], digests["executor-linux-arm64"]
	text, err := bootstrap.Cell(r)
	if err != nil {
		return err
	}
	_, err = io.WriteString(cell, text)
	return err
}

// read is the digest of each file in the form of sha256sum's output.
func read(sums io.Reader) (map[string]string, error) {
	digests := map[string]string{}
	lines := bufio.NewScanner(sums)
	for lines.Scan() {
		if digest, name, found := strings.Cut(lines.Text(), "  "); found {
			digests[name] = digest
		}
	}
	return digests, lines.Err()
}
