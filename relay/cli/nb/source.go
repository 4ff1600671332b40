package nb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/notebook"
	"colabrelay/relay/terminal"
	"colabrelay/shared/bounded"
)

// cellText is where the source of a cell comes from: -c, a file, stdin, or a person's editor.
type cellText struct {
	code  string
	given bool // code is given
}

// addFlag adds -c.
func (t *cellText) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&t.code, "code", "c", "", "use `CODE` as the cell's source")
}

// text returns the source that -c or the argument after the others names, or else stdin has. A
// person at a terminal writes it in the editor instead, from that of the cell: then file has it, which
// the caller deletes after use.
func (t *cellText) text(ctx context.Context, args []string, c *notebookCommand, cell notebook.Cell) (source, file string, err error) {
	switch {
	case t.given && len(args) > 0:
		return "", "", cli.Usagef("give either a file or -c CODE, not both")
	case t.given:
		return t.code, "", nil
	case len(args) == 0 && terminal.Is(c.std.In):
		return writeInEditor(cell.Source, cell.Type, c.set.Getenv, c.std)
	case len(args) == 0 || args[0] == "-":
		source, err = terminal.UntilInterrupted(ctx, func() (string, error) { return readSource(c.std.In) })
		return source, "", err
	}
	f, err := os.Open(args[0])
	if err != nil {
		return "", "", fmt.Errorf("%w: name a file with the cell's source, or give it with -c", err)
	}
	defer f.Close()
	source, err = readSource(f)
	return source, "", err
}

// readSource reads the source of a cell. The last line of a cell has no line break.
func readSource(in io.Reader) (string, error) {
	b, err := bounded.ReadAll(in, notebook.MaxSourceBytes)
	switch {
	case errors.Is(err, bounded.ErrTooLong):
		return "", fmt.Errorf("the cell's source is %v: put data into a file", err)
	case err != nil:
		return "", fmt.Errorf("read the cell's source: %v", err)
	case !utf8.Valid(b):
		return "", errors.New("the cell's source is not UTF-8 text: save it as UTF-8")
	case len(bytes.TrimSpace(b)) == 0:
		return "", errors.New("the cell's source is empty: give it with -c CODE, as a file or on stdin")
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // some editors on Windows write it
	return strings.TrimSuffix(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n"), nil
}

// writeInEditor lets a person edit a source in the editor that VISUAL or EDITOR names. It
// returns the new source, and the file that has it: the caller deletes that after use.
func writeInEditor(source string, t notebook.CellType, getenv func(string) string, std terminal.Streams) (edited, file string, err error) {
	if !terminal.Is(std.In) || !terminal.Is(std.Err) {
		return "", "", errors.New("there is no terminal for an editor: give the source with -c CODE, as a file or on stdin")
	}
	extension := map[notebook.CellType]string{notebook.Code: ".py", notebook.Markdown: ".md"}[t]
	f, err := os.CreateTemp("", "colab-relay-cell-*"+extension)
	if err != nil {
		return "", "", err
	}
	_, err = f.WriteString(source + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = runEditor(append(editor(getenv), f.Name()), std)
	}
	if err != nil { // the person gave it up
		os.Remove(f.Name())
		return "", "", err
	}
	after, err := os.Open(f.Name())
	if err != nil {
		return "", "", err
	}
	defer after.Close()
	if edited, err = readSource(after); err != nil {
		err = forget(f.Name(), err)
	}
	return edited, f.Name(), err
}

// runEditor runs the command of an editor on the person's terminal. Ctrl-C belongs to the editor.
func runEditor(words []string, std terminal.Streams) error {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.In, std.Out, std.Err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %q: %w; set EDITOR to the command of your editor", words[0], err)
	}
	return nil
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
