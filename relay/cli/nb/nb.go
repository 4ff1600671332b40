// Package nb has the commands of `colab-relay nb` that do more than their operations: they take the
// source of a cell from a file, stdin or an editor, and show a run as it goes on. They must not read
// or edit a notebook's JSON themselves: the operations of relay/op do. Start reading at Command.
package nb

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config"
	"colabrelay/relay/notebook"
	"colabrelay/relay/terminal"
)

// Command returns `colab-relay nb`.
func Command(set *config.Settings, std terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nb COMMAND",
		Short: "Read, edit and run notebooks on this computer",
		Long: "Read, edit and run .ipynb files of this computer. Edits change only the lines they are about, so a file keeps its form, its outputs and its metadata.\n" +
			"A cell is named by its id, which `colab-relay nb cells FILE` lists, or by its index, which counts from 0. Quote ids that begin with #, because a shell takes them for comments.",
		Example: "  colab-relay nb cells analysis.ipynb\n" +
			"  colab-relay nb add analysis.ipynb -c 'df.describe()'\n" +
			"  colab-relay nb run analysis.ipynb",
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cli.Operations(set, std, "nb")...)
	cmd.AddCommand(addCommand(set, std), editCommand(set, std), runCommand(set, std))
	return cmd
}

// source returns the source that -c or a word names, or else stdin has. A person at a terminal writes
// it in the editor instead, from the cell as it is.
func (c *sourceCommand) source(cmd *cobra.Command, words []string, present func() (notebook.Cell, error)) (source string, err error) {
	coded := cmd.Flags().Changed("code")
	switch {
	case coded && len(words) > 0:
		return "", cli.Usagef("give either a file or -c CODE, not both")
	case coded:
		return c.code, nil
	case len(words) == 0 && terminal.Is(c.std.In):
		cell, err := present()
		if err != nil {
			return "", err
		}
		return c.edited(cell)
	case len(words) == 0 || words[0] == "-":
		return terminal.UntilInterrupted(cmd.Context(), func() (string, error) { return readSource(c.std.In) })
	}
	if source, err = readFile(words[0]); errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: name a file with the cell's source, or give it with -c", err)
	}
	return source, err
}

// readFile reads the source of a cell from a file.
func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readSource(f)
}

// readSource reads the source of a cell. The last line of a cell has no line break.
func readSource(in io.Reader) (string, error) {
	source, err := cli.ReadCode(in, "the cell's source", notebook.MaxSourceBytes)
	return strings.TrimSuffix(strings.ReplaceAll(source, "\r\n", "\n"), "\n"), err
}

// edited lets a person edit the source of a cell in the editor that VISUAL or EDITOR names, which
// has the terminal and Ctrl-C meanwhile.
func (c *sourceCommand) edited(cell notebook.Cell) (string, error) {
	if !terminal.Is(c.std.Err) {
		return "", errors.New("there is no terminal for an editor: give the source with -c CODE, as a file or on stdin")
	}
	extension := map[notebook.CellType]string{notebook.Code: ".py", notebook.Markdown: ".md"}[cell.Type]
	f, err := os.CreateTemp("", "colab-relay-cell-*"+extension)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(cell.Source + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		words := append(editor(c.set.Getenv), f.Name())
		run := exec.Command(words[0], words[1:]...)
		run.Stdin, run.Stdout, run.Stderr = c.std.In, c.std.Out, c.std.Err
		if err = run.Run(); err != nil {
			err = fmt.Errorf("the editor %q: %w; set EDITOR to the command of your editor", words[0], err)
		}
	}
	if err != nil { // the person gave it up
		os.Remove(f.Name())
		return "", err
	}
	c.written = f.Name()
	source, err := readFile(c.written)
	if err != nil {
		err = forget(c.written, err)
	}
	return source, err
}

// forget deletes the file of an editor after its text was used. If it could not be used because
// of err, it keeps the file and says so.
func forget(file string, err error) error {
	switch {
	case file == "":
		return err
	case err != nil:
		return fmt.Errorf("%w; what you wrote is in %s", err, file)
	}
	return os.Remove(file)
}

// editor returns the command of the person's editor.
func editor(getenv func(string) string) []string {
	for _, variable := range []string{"VISUAL", "EDITOR"} {
		if words := strings.Fields(getenv(variable)); len(words) > 0 {
			return words
		}
	}
	if runtime.GOOS == "windows" {
		return []string{"notepad"}
	}
	return []string{"vi"}
}
