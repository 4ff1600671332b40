package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// analysis are the cells of the demo's notebook, each with its id.
var analysis = [][2]string{
	{"data", "import os, time\nvalues = [3, 1, 2]\ntries = 0"},
	{"fetch", "tries += 1\nif tries < 3:\n    raise ConnectionError('the server did not answer')\nfetched = 40"},
	{"mean", "mean = sum(values) / 0"},
	{"uses-mean", "print('the mean is', mean)"},
	{"train", "for step in range(5):\n    print('step', step, flush=True)\n    open('training', 'w').close()\n    while not os.path.exists('relay-killed'):\n        time.sleep(0.1)"},
	{"result", "print('result', fetched + 3)\nopen('finished', 'w').close()"},
}

// writeAnalysis writes the notebook.
func writeAnalysis(path string) error {
	var cells []string
	for _, cell := range analysis {
		cells = append(cells, fmt.Sprintf(`{"cell_type": "code", "execution_count": null, "id": %q, "metadata": {}, "outputs": [], "source": %q}`, cell[0], cell[1]))
	}
	text := "{\"cells\": [\n" + strings.Join(cells, ",\n") + "\n], \"metadata\": {}, \"nbformat\": 4, \"nbformat_minor\": 5}\n"
	return os.WriteFile(path, []byte(text), 0o600)
}

// notebook runs a notebook and kills the relay meanwhile.
func (d *demo) notebook(ctx context.Context) error {
	d.title("a notebook finishes while no relay exists", "One cell fails twice and is retried, one fails and its dependant is skipped. The VM has the whole run, so it goes on to the last cell without a relay; a new relay writes the outputs into the file.")
	path := filepath.Join(d.dir, "analysis.ipynb")
	if err := writeAnalysis(path); err != nil {
		return err
	}
	for _, cell := range analysis {
		d.line("cell %s", cell[0])
		fmt.Fprintln(d.out, indent(cell[1], "    │ "))
	}
	fmt.Fprintln(d.out)
	arguments := map[string]any{"notebook_path": path, "on_error": "skip_dependants", "retries": 2}
	if err := os.Remove(filepath.Join(d.executor.Config.Dir, "relay-killed")); err != nil { // of the long run
		return err
	}
	if err := d.killRelayDuring(ctx, "training", "run_notebook", arguments); err != nil {
		return err
	}
	if err := <-whenWritten(ctx, filepath.Join(d.executor.Config.Dir, "finished"), func() {}); err != nil {
		return err
	}
	d.line("the last cell has run on the VM")
	if err := d.newRelay(ctx); err != nil {
		return err
	}
	if _, err := d.toTheEnd(ctx, "run_notebook", arguments); err != nil {
		return err
	}
	return d.notebookReport(ctx, path)
}

// notebookReport shows the report of the run, and checks what ran.
func (d *demo) notebookReport(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, d.binaries.Relay, "nb", "report", path)
	cmd.Env = append(os.Environ(), d.home()...)
	report, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("colab-relay nb report: %w\n%s", err, report)
	}
	d.line("$ colab-relay nb report %s", path)
	fmt.Fprintln(d.out, indent(string(report), "      "))
	saved, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for _, want := range []string{`step 4\n`, `result 43\n`} {
		if !strings.Contains(string(saved), want) {
			return fmt.Errorf("the notebook lacks the output %q", want)
		}
	}
	for _, want := range []string{"4 succeeded, 1 failed, 1 skipped", "ran 3 times"} {
		if !strings.Contains(string(report), want) {
			return fmt.Errorf("the report lacks %q", want)
		}
	}
	return nil
}
