package colabcli

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"colabrelay/relay/vm/colabcli/colabclitest"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// differences returns what the backend uses and a program does not offer.
func differences(offered map[string]colabclitest.Command) error {
	var missing []error
	for _, c := range commands {
		has, found := offered[c.name]
		if !found {
			missing = append(missing, fmt.Errorf("no command %q", c.name))
			continue
		}
		for _, o := range c.options {
			if !slices.ContainsFunc(has.Options, func(h colabclitest.Option) bool {
				return slices.Contains(h.Flags, o.flag) && h.Value == o.value
			}) {
				missing = append(missing, fmt.Errorf("colab %s has no option %s with value %t", c.name, o.flag, o.value))
			}
		}
		if c.arguments < has.Arguments[0] || c.arguments > has.Arguments[1] {
			missing = append(missing, fmt.Errorf("colab %s takes %d to %d arguments, not %d", c.name, has.Arguments[0], has.Arguments[1], c.arguments))
		}
	}
	return errors.Join(missing...)
}

func TestGooglesProgramHasEverythingThatIsUsed(t *testing.T) {
	tier.Long(t)
	wheel, found := stacks.ColabCLI(t)
	if !found {
		return
	}
	google := colabclitest.ReadWheel(t, wheel)
	if err := differences(google.Commands); err != nil {
		t.Error(err)
	}
	for name, c := range colabclitest.Table(t) {
		if got, want := asJSON(t, c), asJSON(t, google.Commands[name]); got != want {
			t.Errorf("the stand-in has colab %s as %s; Google's program: %s", name, got, want)
		}
	}
}

func TestTheStandInHasNothingButWhatIsUsed(t *testing.T) {
	table := colabclitest.Table(t)
	if err := differences(table); err != nil {
		t.Error(err)
	}
	if len(table) != len(commands) {
		t.Errorf("the stand-in has %d commands, the backend uses %d", len(table), len(commands))
	}
}

func TestTheTextsThatAreReadAreInGooglesProgram(t *testing.T) {
	tier.Long(t)
	wheel, found := stacks.ColabCLI(t)
	if !found {
		return
	}
	all := strings.Join(colabclitest.ReadWheel(t, wheel).Texts, "\n")
	read := []string{noRows, "Hardware: ", "Shape: ", "Variant: ", "High-RAM", "Standard", "Failed to issue request "}
	for _, row := range texts {
		if !strings.HasPrefix(row.text, "No such ") { // of the library click
			read = append(read, row.text)
		}
	}
	for _, text := range read {
		if !strings.Contains(all, text) {
			t.Errorf("Google's program never prints %q", text)
		}
	}
}

// A copy of Google's program in which one thing is changed must be noticed.
func TestAChangeOfGooglesProgramIsNoticed(t *testing.T) {
	tier.Long(t)
	wheel, found := stacks.ColabCLI(t)
	if !found {
		return
	}
	for _, test := range []struct{ name, module, old, new, want string }{
		{"a flag is renamed", "session.py", `"--high-mem"`, `"--high-memory"`, "colab new has no option --high-mem"},
		{"a flag is gone", "session.py", `typer.Option("-s", "--session", help="Session name")`, `typer.Argument()`, "colab stop has no option -s"},
		{"an option takes no value", "execution.py", "Optional[float]", "bool", "colab exec has no option --timeout with value true"},
		{"a command is renamed", "execution.py", `name="exec"`, `name="execute"`, `no command "exec"`},
		{"a command is gone", "session.py", "app.command()(stop)", "pass", `no command "stop"`},
		{"an argument is gone", "files.py", `remote_path: Annotated[str, typer.Argument(help="Remote path to upload to")] = ...,`, "", "colab upload takes 1 to 1 arguments, not 2"},
		{"an argument is added", "session.py", "def sessions_command():", "def sessions_command(x: Annotated[str, typer.Argument()] = ...):", "colab sessions takes 1 to 1 arguments, not 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			changed := changedWheel(t, wheel, "colab_cli/commands/"+test.module, test.old, test.new)
			err := differences(colabclitest.ReadWheel(t, changed).Commands)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q, got %v", test.want, err)
			}
		})
	}
}

// changedWheel returns a copy of the wheel's commands in which a text of a module is replaced.
func changedWheel(t *testing.T, wheel, module, old, replacement string) string {
	t.Helper()
	from, err := zip.OpenReader(wheel)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	var buf bytes.Buffer
	to, replaced := zip.NewWriter(&buf), false
	for _, f := range from.File {
		if !strings.HasPrefix(f.Name, "colab_cli/commands/") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name == module {
			replaced = bytes.Contains(content, []byte(old))
			content = bytes.ReplaceAll(content, []byte(old), []byte(replacement))
		}
		w, err := to.Create(f.Name)
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "changed.whl")
	if err := errors.Join(to.Close(), os.WriteFile(path, buf.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	if !replaced {
		t.Fatalf("%s does not contain %q", module, old)
	}
	return path
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNothingElseIsPassed(t *testing.T) {
	for name, call := range map[string]func(){
		"an option of another command": func() { stop.argv([]setting{{gpu, "T4"}}) },
		"too few arguments":            func() { upload.argv([]setting{{session, "a"}}, "x") },
		"an argument too many":         func() { sessions.argv(nil, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("passed")
				}
			}()
			call()
		})
	}
}
