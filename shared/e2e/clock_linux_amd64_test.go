package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// A program starts with a wall clock that is wrong by an hour, and the clock is set, also by
// hours, while it works. Everything works as with the right clock, and a request that is sent
// again is refused at any time.
func TestAClockThatIsWrongByAnHour(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	for name, ahead := range map[string]struct{ vm, laptop time.Duration }{
		"the executor's": {vm: time.Hour}, "the relay's": {laptop: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			e := startExecutor(t, harness.ExecutorConfig{Python: stacks.Old(t).Python, ClockOffset: ahead.vm})
			m := newMiddleman(t, e.Ready.LocalURL)
			h := startHost(t, m.URL, harness.HostConfig{Dir: dir, ClockOffset: ahead.laptop, Env: []string{"RELAY_HOLD=5s", "LOCAL_SAVE_DIR=" + dir + "/saved"}})
			c := &clocks{t: t, vm: e, host: h, line: m, dir: dir}
			c.must(ahead.vm, ahead.laptop)
			c.work("at the start")
			for _, offset := range []time.Duration{0, time.Hour, -time.Hour} {
				if ahead.vm != 0 {
					must(t, harness.SetClock(e.PID(), offset))
				} else {
					must(t, harness.SetClock(h.PID(), offset))
				}
				c.work(fmt.Sprint("set to ", offset))
				c.repeat()
			}
		})
	}
}

// clocks is a VM and a laptop, one of which has a wrong clock.
type clocks struct {
	t    *testing.T
	vm   *harness.Executor
	host *harness.Host
	line *middleman
	dir  string // the laptop's
	runs int
}

var createdAt = regexp.MustCompile(`created=(\d+)`)

// must checks that both programs have these clocks: the executor's answers carry its time, and
// the relay's first request its own.
func (c *clocks) must(vm, laptop time.Duration) {
	c.t.Helper()
	want(c.t, quick(c.t, c.host, "1"), map[string]any{"result": "1"})
	first := c.line.all()[0]
	date, err := http.ParseTime(first.answer.header.Get("Date"))
	must(c.t, err)
	created, err := strconv.ParseInt(createdAt.FindStringSubmatch(first.request.header.Get("Signature-Input"))[1], 10, 64)
	must(c.t, err)
	for what, off := range map[string]time.Duration{
		"executor": time.Until(date) - vm, "relay": time.Until(time.Unix(created, 0)) - laptop,
	} {
		if off.Abs() > 10*time.Minute {
			c.t.Fatalf("the %s's clock is wrong by %s", what, off)
		}
	}
}

// work does what needs time on both sides: runs, also one that outlasts its call, and files.
func (c *clocks) work(when string) {
	c.t.Helper()
	c.runs++
	name := fmt.Sprint("file", c.runs)
	code := fmt.Sprintf("open('runs', 'a').write('x')\nopen(%q, 'w').write(%q * 1_000)\nlen(open('runs').read())", name, name)
	want(c.t, quick(c.t, c.host, code), map[string]any{"success": true, "result": c.runs})
	a := call(c.t, c.host, "run_code_long", map[string]any{"code": fmt.Sprintf("print('begun', flush=True)\nimport os, time\nwhile not os.path.exists(%q): time.sleep(0.05)\nprint('ended')", "end"+name)})
	want(c.t, a, map[string]any{"status": "running"})
	must(c.t, os.WriteFile(filepath.Join(c.vm.Config.Dir, "end"+name), nil, 0o600))
	rest, last := follow(c.t, c.host, a.String("execution_id"), a.Int("next_offset"))
	want(c.t, last, map[string]any{"status": "succeeded"})
	if got := a.String("stdout") + rest; got != "begun\nended\n" {
		c.t.Errorf("%s: the output is %q", when, got)
	}
	got := call(c.t, c.host, "download_from_colab", map[string]any{"remote_path": name})
	want(c.t, got, map[string]any{"success": true})
	text, err := os.ReadFile(got.String("local_path"))
	if err != nil || string(text) != strings.Repeat(name, 1_000) {
		c.t.Errorf("%s: %d bytes came, %v", when, len(text), err)
	}
	want(c.t, call(c.t, c.host, "upload_to_colab", map[string]any{"local_path": got.String("local_path"), "remote_path": "again" + name}), map[string]any{"success": true})
	if fileDigest(c.t, filepath.Join(c.vm.Config.Dir, "again"+name)) != fileDigest(c.t, got.String("local_path")) {
		c.t.Errorf("%s: the file on the VM differs", when)
	}
}

// repeat sends again whatever the line has carried.
func (c *clocks) repeat() {
	c.t.Helper()
	kinds := map[string]bool{}
	for _, x := range c.line.all() {
		if x.request.header.Get("Signature") == "" || x.answer.status == http.StatusUnauthorized {
			continue // GET /health, or refused the first time
		}
		kinds[x.request.method] = true
		if answer := c.line.forward(x.request); answer.status != http.StatusUnauthorized {
			c.t.Errorf("%s %s, sent again: status %d", x.request.method, x.request.path, answer.status)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
		if !kinds[method] {
			c.t.Errorf("no %s was sent again", method)
		}
	}
	want(c.t, quick(c.t, c.host, "len(open('runs').read())"), map[string]any{"result": c.runs})
}
