package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
	"colabrelay/shared/within"
)

// What README.md has in place of a reader's own values.
const (
	readmeRelease = "https://github.com/OWNER/REPO/releases/latest/download"
	readmeToken   = "YOUR-TOKEN"
	readmeURL     = "https://your-name.ngrok-free.app"
)

// readmeBlock returns the first fenced block of README.md in that language (empty for none)
// that has a text.
func readmeBlock(t *testing.T, language, text string) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(stacks.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(readme), -1) {
		if found[1] == language && strings.Contains(found[2], text) {
			return found[2]
		}
	}
	t.Fatalf("README.md has no block %q with %q", language, text)
	return ""
}

// replaceAll replaces every old text, which must be there.
func replaceAll(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// program returns the path of a program that the README's lines use. It is not optional:
// without it these lines are untested.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("README.md uses %s, which this machine lacks: install it", name)
	}
	return path
}

// The short cell of README.md starts a release in a notebook's kernel, prints what README.md
// shows, and answers a paired relay and README.md's curl line until the cell is stopped.
func TestTheShortCellOfTheREADMEStartsARelease(t *testing.T) {
	tier.Long(t)
	program(t, "wget")
	curl := program(t, "curl")
	v, edge, relay := colab(t, stacks.Old(t))
	cell := readmeBlock(t, "python", "!wget")
	v.cell = replaceAll(t, cell, readmeRelease, shortRelease(t), "executor-linux-amd64", asset, readmeToken, testToken)
	p := v.open()
	p.awaitUp(t)
	h := paired(t, relay, p.pairing())
	kernel, executor := pids(t, h)
	t.Cleanup(func() { _ = syscall.Kill(executor, syscall.SIGKILL) }) // if the stop did not end it

	if auths := edge.Auths(); len(auths) == 0 || auths[0].Extra.Authtoken != testToken {
		t.Errorf("ngrok got the tokens %+v", auths)
	}
	shown := v.shown(strings.ReplaceAll(p.Shown.String(), "\r", ""))
	printed := replaceAll(t, readmeBlock(t, "", "  public "), readmeURL, edge.URL())
	for line := range strings.Lines(printed) {
		if !shownLike(line).MatchString(shown) {
			t.Errorf("README.md shows the line %q, which the cell does not print:\n%s", strings.TrimSpace(line), shown)
		}
	}
	for _, text := range []string{printed, shown} { // the line to paste comes once kernel and tunnel are up
		if pair := strings.Index(text, "  pair "); pair < strings.Index(text, "  kernel ") || pair < strings.Index(text, "  public ") {
			t.Errorf("the pairing string comes before kernel or tunnel:\n%s", text)
		}
	}

	line := strings.Fields(replaceAll(t, readmeBlock(t, "sh", "/health"), readmeURL, edge.URL()))
	answer, err := exec.CommandContext(t.Context(), curl, line[1:]...).Output()
	if err != nil || line[0] != "curl" {
		t.Fatalf("%q: %v", line, err)
	}
	sameHealth(t, string(answer), readmeBlock(t, "json", `"status":"ok"`))

	p.stop(t)
	within.Until(t, "executor, kernel and tunnel are gone after a stop", func() bool {
		return gone(kernel) && gone(executor) && !edge.Online(edge.URL())
	})
}

// shortRelease serves a release at which the executor, once downloaded, listens on a free
// port: other programs of this machine may use its usual one.
func shortRelease(t *testing.T) string {
	t.Helper()
	realRelease(t) // builds it
	mux := http.NewServeMux()
	mux.HandleFunc("/download/"+asset, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "#!/bin/sh\nexec %s --listen 127.0.0.1:0 \"$@\"\n", filepath.Join(made.dir, asset))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/download"
}

// shownLike matches a line of README.md, whose pairing string is cut and whose versions are
// examples.
func shownLike(line string) *regexp.Regexp {
	pattern := regexp.QuoteMeta(strings.TrimRight(line, "\n"))
	pattern = strings.ReplaceAll(pattern, "…", `\S+`)
	pattern = regexp.MustCompile(`\d+\\\.\d+\\\.\d+`).ReplaceAllLiteralString(pattern, `\d+\.\d+\.\d+`)
	return regexp.MustCompile("(?m)^" + pattern + `\s*$`)
}

// sameHealth fails unless both answers have the same fields, and their status and protocol
// are equal.
func sameHealth(t *testing.T, answer, example string) {
	t.Helper()
	var got, want map[string]any
	if err := errors.Join(json.Unmarshal([]byte(answer), &got), json.Unmarshal([]byte(example), &want)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) || got["status"] != want["status"] || got["protocol"] != want["protocol"] {
		t.Errorf("/health answers %s, README.md shows %s", answer, example)
	}
}

// The release's notebook has the short line with the release's own address.
func TestTheNotebookHasTheShortLineOfTheREADME(t *testing.T) {
	_, line, _ := strings.Cut(readmeBlock(t, "python", "!wget"), "\n!")
	r := Release{Releases: "https://example.com/r", Version: "v1.0.0", SHA256AMD64: digestOf("a"), SHA256ARM64: digestOf("b")}
	text := introOf(t, r)
	if want := replaceAll(t, "!"+strings.TrimSpace(line), readmeRelease, r.Releases+"/"+r.Version); !strings.Contains(text, want) {
		t.Errorf("the notebook lacks %q:\n%s", want, text)
	}
}

// introOf returns the instructions in a release's notebook.
func introOf(t *testing.T, r Release) string {
	t.Helper()
	text, err := Notebook(r)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Cells []struct{ Source []string }
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return strings.Join(read.Cells[0].Source, "")
}
