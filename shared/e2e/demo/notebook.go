package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"colabrelay/shared/e2e/harness"
)

// analysis are the cells of the demo's notebook, each with its id.
var analysis = [][2]string{
	{"data", "import time\nvalues = [3, 1, 2]\ntries = 0"},
	{"fetch", "tries += 1\nif tries < 3:\n    raise ConnectionError('the server did not answer')\nfetched = 40"},
	{"mean", "mean = sum(values) / 0"},
	{"uses-mean", "print('the mean is', mean)"},
	{"train", "for step in range(5):\n    print('step', step, flush=True)\n    time.sleep(1)"},
	{"result", "print('result', fetched + len(values))"},
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
	d.title("the relay is killed while a notebook runs", "One cell fails twice and is retried, one fails and its dependant is skipped. The next cells wait on the VM, so the run goes on without the relay.")
	path := filepath.Join(d.dir, "analysis.ipynb")
	if err := writeAnalysis(path); err != nil {
		return err
	}
	for _, cell := range analysis {
		d.line("cell %s", cell[0])
		fmt.Fprintln(d.out, indent(cell[1], "    │ "))
	}
	fmt.Fprintln(d.out)
	arguments := map[string]any{"notebook_path": path}
	d.asked("run_notebook", arguments)
	time.AfterFunc(5*time.Second, d.host.Kill)
	if _, err := d.host.Call(ctx, "run_notebook", arguments); err == nil {
		return errors.New("the call was answered before the relay was killed")
	}
	d.line("$ kill -9 %d   # the relay, while train runs", d.host.PID())
	if err := d.startHost(ctx, nil); err != nil {
		return err
	}
	d.line("a new relay, pid %d; the same call continues the run:", d.host.PID())
	fmt.Fprintln(d.out)
	a, err := d.call(ctx, d.host, "run_notebook", arguments)
	for err == nil && a.Fields["can_continue"] == true {
		a, err = d.call(ctx, d.host, "run_notebook", arguments)
	}
	if err != nil {
		return err
	}
	return d.notebookReport(a, path)
}

// notebookReport shows the report of the run, and checks what ran.
func (d *demo) notebookReport(a harness.Answer, path string) error {
	report, err := os.ReadFile(a.String("report_path"))
	if err != nil {
		return err
	}
	d.line("$ cat %s", a.String("report_path"))
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
	for _, want := range []string{"4 succeeded, 1 failed, 1 skipped", "2 retries"} {
		if !strings.Contains(string(report), want) {
			return fmt.Errorf("the report lacks %q", want)
		}
	}
	return nil
}
