package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"colabrelay/executor/tunnel/ngroktest"
	"colabrelay/relay/pairing"
	"colabrelay/shared/e2e/browser"
	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
)

const openTool = "open_colab_browser_connection"

// notebookURL is the notebook of the demo. Saved notebooks survive their tab.
const notebookURL = "https://" + browser.Host + "/drive/rides"

func (d *demo) pageUp(ctx context.Context) {
	d.title("the page, its VM and an MCP host", "A stand-in of Colab's page in a real Chromium: its address and Origin are Colab's, its cells run in a real kernel. The relay is real.")
	d.page.open(ctx, d.binaries.Executor)
	tokenFile := filepath.Join(d.dir, "ngrok-token")
	harness.Check(os.WriteFile(tokenFile, []byte(d.page.token+"\n"), 0o600))
	d.host = harness.Must(harness.StartHost(ctx, harness.HostConfig{Binary: d.binaries.Relay, Args: []string{"serve"}, Dir: d.dir, Env: []string{
		"BROWSER=" + d.page.chromium.Program, "RELAY_TOOLSETS=page", "RELAY_STRUCTURED=on", "RELAY_HOLD=" + longHold.String(), "NGROK_AUTHTOKEN_FILE=" + tokenFile, "COLAB_RELAY_RELEASE_URL=" + d.page.release.URL + "/v1.0.0",
	}}))
	d.line("page    %s, served at %s", notebookURL, d.page.colab.Secure.URL)
	d.line("relay   pid %d, with the toolset page", d.host.PID())
}

// connect calls the tool that opens the page, while the person clicks "Connect" there.
func (d *demo) connect(ctx context.Context) {
	clicked := make(chan error, 1)
	go func() { clicked <- harness.Try(func() { harness.Check(d.page.tab(ctx).Confirm(ctx)) }) }()
	a := d.openPage(ctx, map[string]any{"notebook_url": notebookURL})
	harness.Check(<-clicked)
	d.line("(meanwhile, in the page, the person clicked \"Connect\")")
	harness.FailIf(a.Fields["connected"] != true, "the page is not connected")
}

// openPage calls the tool that opens the page until it has nothing to wait for.
func (d *demo) openPage(ctx context.Context, arguments map[string]any) harness.Answer {
	a := d.call(ctx, d.host, openTool, arguments)
	for a.Fields["waiting"] == true {
		a = d.call(ctx, d.host, openTool, arguments)
	}
	return a
}

func (d *demo) pageConnects(ctx context.Context) {
	d.title("connect the notebook", "The relay opens the browser, the page asks the person, and the tab connects.")
	d.connect(ctx)
	a := d.call(ctx, d.host, "get_cells", map[string]any{})
	cells, _ := a.Fields["cells"].([]any)
	harness.FailIf(len(cells) != 1, "a new notebook has %d cells, not 1", len(cells))
	empty, _ := cells[0].(map[string]any)
	a = d.call(ctx, d.host, "delete_cell", map[string]any{"cellId": empty["id"]})
	harness.FailIf(a.IsError, "the empty cell was not deleted")
}

// pageCells are the cells that the agent writes, with a text that the answer of each must have.
var pageCells = [][2]string{
	{"import pandas as pd\n\n# one row for each day\nrides = pd.DataFrame({\n    'rides': [412, 388, 405, 431, 520, 688, 654],\n    'km': [1.9, 2.0, 1.8, 2.1, 2.4, 4.2, 3.9],\n}, index=['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'])\nrides.T", "Mon"},
	{"import matplotlib.pyplot as plt\n\nplt.rcParams['figure.dpi'] = 150\nax = rides['rides'].plot.bar(figsize=(8, 2.6), color='#c75b12', rot=0)\nax.set_ylabel('rides')\nax.spines[['top', 'right']].set_visible(False)\nplt.show()", ""},
	{"weekend = rides.loc[['Sat', 'Sun'], 'rides'].sum()\nprint(f'{weekend} of {rides.rides.sum()} rides are at the weekend')", "1342 of 3498 rides are at the weekend"},
}

func (d *demo) pageNotebook(ctx context.Context) {
	d.title("the agent works in the notebook", "Without notebook_path, the tools for cells act on the tab. The person sees each step in the browser.")
	d.call(ctx, d.host, "add_text_cell", map[string]any{"cellIndex": 0, "content": "# Rides in a week\n\nAn agent wrote these cells through `colab-relay`. The **kernel of the page** ran them."})
	for i, cell := range pageCells {
		id := d.addToPage(ctx, i+1, cell[0])
		a := d.call(ctx, d.host, "run_code_cell", map[string]any{"cellId": id})
		harness.FailIf(a.IsError || !strings.Contains(a.Text, cell[1]) || i == 1 && len(a.Images) != 1, "cell %d did not give the expected result", i)
	}
}

func (d *demo) addToPage(ctx context.Context, at int, code string) (id string) {
	return d.call(ctx, d.host, "add_code_cell", map[string]any{"cellIndex": at, "language": "python", "code": code}).String("cell_id")
}

func (d *demo) pageLost(ctx context.Context) {
	d.title("the tab is closed while a cell runs", "The agent is told that the cell may still be running. A new tab connects with a new token, and finds the notebook.")
	content := filepath.Join(d.page.vm, "content")
	id := d.addToPage(ctx, 4, "import os, time\nopen('began', 'w').close()\nwhile not os.path.exists('tab-closed'):\n    time.sleep(0.1)\nfinished = 'the cell ran to its end without the tab'")
	var closing error
	closed := whenWritten(ctx, filepath.Join(content, "began"), func() { closing = d.page.current().Close(ctx) })
	a := d.call(ctx, d.host, "run_code_cell", map[string]any{"cellId": id})
	harness.Check(<-closed)
	harness.Check(closing)
	harness.Check(os.WriteFile(filepath.Join(content, "tab-closed"), nil, 0o600))
	harness.FailIf(!a.IsError, "the lost tab was not reported")
	d.connect(ctx)
	d.call(ctx, d.host, "update_cell", map[string]any{"cellId": id, "content": "finished"})
	a = d.call(ctx, d.host, "run_code_cell", map[string]any{"cellId": id})
	harness.FailIf(!strings.Contains(a.Text, "to its end"), "the cell did not run on")
}

func (d *demo) pageExecutor(ctx context.Context) {
	d.title("one call starts the executor", "A temporary cell starts the executor and hands it the encrypted secret; then it is deleted. This computer is now paired with the VM, and all other tools work there.")
	a := d.openPage(ctx, map[string]any{"start_executor": true})
	harness.FailIf(a.String("executor") == "", "no executor was paired")
	note := filepath.Join(d.page.vm, "content", "note.txt")
	a = d.quick(ctx, fmt.Sprintf("open(%q, 'w').write('written by the executor')", note))
	harness.FailIf(a.IsError, "the executor did not run code")
	id := d.addToPage(ctx, 5, "print(open('note.txt').read())  # the page and the executor share the VM")
	a = d.call(ctx, d.host, "run_code_cell", map[string]any{"cellId": id})
	harness.FailIf(!strings.Contains(a.Text, "written by the executor"), "the notebook does not see the executor's file")
}

func (d *demo) pageSecrets(context.Context) {
	d.title("no secret was shown", "All code that the page ran, all outputs and every saved state of the notebook are searched.")
	r := harness.Must(pairing.Open(filepath.Join(d.dir, "config", "colab-relay")).Get("default"))
	all := d.page.colab.Everything()
	for name, secret := range map[string]string{"the executor's secret": r.Secret.Reveal(), "ngrok's authtoken": d.page.token} {
		harness.FailIf(strings.Contains(all, secret), "the page saw %s", name)
		d.line("%-22s not in %d KB", name, len(all)>>10)
	}
	harness.FailIf(strings.Contains(d.host.Stderr.String(), "mcpProxyToken"), "the relay logged a link")
}

// pagePicture saves a picture of the page, and checks what a person sees there.
func (d *demo) pagePicture(ctx context.Context) {
	d.title("the page", "What the person sees at the end.")
	tab := d.page.current()
	text := harness.Must(tab.Text(ctx, "#cells"))
	harness.FailIf(!strings.Contains(text, "1342 of 3498") || strings.Contains(text, "enroll"), "the page shows %q", text)
	picture := harness.Must(tab.Picture(ctx, 900))
	path := filepath.Join(stacks.Root(), ".demo", "page.png")
	harness.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	harness.Check(os.WriteFile(path, picture, 0o644))
	d.line("%s, %d KB; all took %s", path, len(picture)>>10, took(time.Since(d.began)))
}

// pageStage is what the demo of Colab's page needs: the page with its VM, ngrok's edge, a
// release of the executor, and the browser.
type pageStage struct {
	vm       string // folder with the VM's content, home and temporary files
	colab    *browser.Colab
	edge     *ngroktest.Edge
	release  *httptest.Server
	chromium *browser.Chromium
	tools    *browser.DevTools // once the relay started the browser
	tabs     []*browser.Tab    // all that the relay opened
	token    string            // of ngrok
}

// open starts all but the browser, which the relay starts.
func (p *pageStage) open(ctx context.Context, executor string) {
	p.vm = harness.Must(os.MkdirTemp("", "vm-")) // a short path: sockets allow 107 bytes
	for _, name := range []string{"content", "home", "tmp"} {
		harness.Check(os.Mkdir(filepath.Join(p.vm, name), 0o700))
	}
	p.edge = harness.Must(ngroktest.Open(p.vm))
	program := harness.Must(os.ReadFile(executor))
	p.release, p.token = httptest.NewServer(releaseOf(program)), "2demo"+rand.Text()
	p.colab = harness.Must(browser.New(ctx, filepath.Join(p.vm, "content"),
		"HOME="+filepath.Join(p.vm, "home"), "TMPDIR="+filepath.Join(p.vm, "tmp"),
		"COLAB_RELAY_NGROK_SERVER="+p.edge.Addr, "COLAB_RELAY_NGROK_CA="+p.edge.CAFile))
	p.chromium = harness.Must(browser.NewChromium(p.colab))
}

// releaseOf serves a release with this executor.
func releaseOf(program []byte) http.Handler {
	sum := sha256.Sum256(program)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1.0.0/SHA256SUMS", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%x  executor-linux-amd64\n%[1]x  executor-linux-arm64\n", sum)
	})
	mux.HandleFunc("GET /v1.0.0/{program}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(program) })
	return mux
}

// tab waits for the next tab that the relay opens.
func (p *pageStage) tab(ctx context.Context) *browser.Tab {
	if p.tools == nil {
		p.tools = harness.Must(p.chromium.Attach(ctx))
	}
	tab := harness.Must(p.tools.Opened(ctx, "https://"+browser.Host+"/", p.tabs...))
	p.tabs = append(p.tabs, tab)
	return tab
}

// current is the tab that was opened last.
func (p *pageStage) current() *browser.Tab { return p.tabs[len(p.tabs)-1] }

// close ends what open started, and the executors on the VM.
func (p *pageStage) close() {
	if p.tools != nil {
		p.tools.Close()
	}
	if p.chromium != nil {
		_ = p.chromium.Close()
	}
	if p.colab != nil {
		p.colab.Close()
	}
	if p.vm != "" {
		p.endExecutors()
		os.RemoveAll(p.vm)
	}
	if p.release != nil {
		p.release.Close()
	}
	if p.edge != nil {
		p.edge.Close()
	}
}

// endExecutors ends the executors that were started through the notebook.
func (p *pageStage) endExecutors() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	files, _ := filepath.Glob(filepath.Join(p.vm, "tmp", "colab-relay-enroll-*", "pid"))
	for _, file := range files {
		var pid int
		if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &pid) != nil || pid <= 1 {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGTERM)
		if harness.Poll(ctx, func() (bool, error) { return syscall.Kill(pid, 0) != nil, nil }) != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
