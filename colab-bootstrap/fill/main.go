// Command fill makes the Colab cell of a release: it reads SHA256SUMS from stdin and
// writes the cell, or a notebook with it, to stdout.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	bootstrap "colabrelay/colab-bootstrap"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fill:", err)
		os.Exit(1)
	}
}

func run(args []string, sums io.Reader, out io.Writer) error {
	var r bootstrap.Release
	flags := flag.NewFlagSet("fill", flag.ContinueOnError)
	flags.StringVar(&r.Releases, "releases", "", "URL of the folder that holds a folder for each version")
	flags.StringVar(&r.Version, "version", "", "the release's version")
	notebook := flags.Bool("notebook", false, "write a notebook (.ipynb) with the cell")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := r.ReadSums(sums); err != nil {
		return err
	}
	if *notebook {
		text, err := bootstrap.Notebook(r)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	}
	text, err := bootstrap.Cell(r)
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	return err
}
