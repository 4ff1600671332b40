package page

import (
	"net/url"
	"strings"
	"testing"
)

func TestNotebookURLs(t *testing.T) {
	for _, good := range []string{
		"", "https://colab.research.google.com", "https://colab.research.google.com/", EmptyNotebook,
		"https://colab.google.com/x", "https://colab.research.google.com/drive/1aB?authuser=1",
		"https://colab.research.google.com/github/o/r/blob/main/a%20b.ipynb#scrollTo=x",
		"https://colab.research.google.com/gist/o/abc",
	} {
		if err := CheckNotebookURL(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"colab.research.google.com/drive/1":                           "https://",
		"http://colab.research.google.com/":                           "https://",
		"HTTP://colab.research.google.com/":                           "https://",
		"javascript:alert(1)//colab.google.com":                       "https://",
		"file:///etc/passwd":                                          "https://",
		"//colab.research.google.com/":                                "https://",
		"https://":                                                    "does not belong",
		"https:colab.research.google.com/":                            "does not belong",
		"https:///colab.research.google.com/":                         "does not belong",
		"https://evil.example/":                                       "does not belong",
		"https://colab.research.google.com.evil.com/":                 "does not belong",
		"https://colab.research.google.com./":                         "does not belong",
		"https://COLAB.research.google.com/":                          "does not belong",
		"https://colab.research.google.com:443/":                      "does not belong",
		"https://colab.research.google.com:/":                         "does not belong",
		"https://x@colab.research.google.com/":                        "names a user",
		"https://colab.research.google.com@evil.com/":                 "names a user",
		"https://colab.research.google.com#@evil.com/":                "",
		"https://evil.com#https://colab.google.com/":                  "does not belong",
		"https://evil.com/?https://colab.google.com/":                 "does not belong",
		"https://colab.google.com/#a#b":                               `more than one "#"`,
		"https://colab.google.com/##":                                 `more than one "#"`,
		"https://colab.google.com/a b":                                "percent-encoded",
		"https://colab.google.com/\"x":                                "percent-encoded",
		"https://colab.google.com/'x":                                 "percent-encoded",
		"https://colab.google.com/`x`":                                "percent-encoded",
		"https://colab.google.com/\\evil.example":                     "percent-encoded",
		"https://colab.google.com\\@evil.example":                     "",
		"https://colab.google.com/x|y":                                "percent-encoded",
		"https://colab.google.com/\u202ex":                            "percent-encoded",
		"https://c\u043elab.google.com/":                              "percent-encoded",
		"https://colab.google.com/\x00":                               "",
		"https://colab.google.com/\nx":                                "",
		" https://colab.google.com/":                                  "",
		"https://colab.google.com/%":                                  "no valid form",
		"https://colab.google.com/%zz":                                "no valid form",
		"https://[::1]/":                                              "does not belong",
		"-n":                                                          "https://",
		"https://colab.google.com/" + strings.Repeat("a", maxAddress): "2000",
	} {
		err := CheckNotebookURL(bad)
		if bad == "https://colab.research.google.com#@evil.com/" { // the fragment is not sent, and is replaced
			if err != nil {
				t.Errorf("%q: %v", bad, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	const end = "#mcpProxyToken=T&mcpProxyPort=8765"
	for notebook, want := range map[string]string{
		"": "https://colab.research.google.com/notebooks/empty.ipynb?p=8765" + end,
		"https://colab.research.google.com/drive/1?authuser=1#scrollTo=x": "https://colab.research.google.com/drive/1?authuser=1&p=8765" + end,
		"https://colab.research.google.com/github/o/r/blob/m/a%20b.ipynb": "https://colab.research.google.com/github/o/r/blob/m/a%20b.ipynb?p=8765" + end,
		"https://colab.research.google.com":                               "https://colab.research.google.com?p=8765" + end,
		"https://colab.google.com/a%2Fb?":                                 "https://colab.google.com/a%2Fb?p=8765" + end,
		"https://colab.google.com/x#mcpProxyToken=old&mcpProxyPort=1":     "https://colab.google.com/x?p=8765" + end,
	} {
		if got, err := address(notebook, 8765, "T"); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", notebook, got, err, want)
		}
	}
}

// An address that is accepted leads to Colab in every reader, keeps its path and query, and
// has our fragment alone.
func FuzzNotebookURL(f *testing.F) {
	for _, seed := range []string{
		EmptyNotebook, "https://colab.google.com/drive/a?x=1#y", "https://colab.google.com@evil/", "https://colab.google.com\\.evil/", "https://colab.google.com/%2e?%zz", "//x", "https://colab.google.com?a?b#",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, notebook string) {
		made, err := address(notebook, 80, "T")
		if (err == nil) != (CheckNotebookURL(notebook) == nil) {
			t.Fatalf("checked as %v, made as %v", CheckNotebookURL(notebook), err)
		}
		if err != nil {
			return
		}
		if notebook == "" {
			notebook = EmptyNotebook
		}
		if !strings.HasPrefix(made, "https://"+origins[0][8:]) && !strings.HasPrefix(made, "https://"+origins[1][8:]) {
			t.Errorf("%q became %q", notebook, made)
		}
		if rest := made[strings.Index(made, ".com")+4:]; !strings.ContainsAny(rest[:1], "/?#") {
			t.Errorf("%q became %q: the host goes on", notebook, made)
		}
		before, _ := url.Parse(notebook)
		after, err := url.Parse(made)
		if err != nil || after.EscapedPath() != before.EscapedPath() || !strings.HasPrefix(after.RawQuery, before.RawQuery) {
			t.Errorf("%q became %q, %v", notebook, made, err)
		}
		if strings.Count(made, "#") != 1 || after.Fragment != "mcpProxyToken=T&mcpProxyPort=80" || !strings.HasSuffix(after.RawQuery, "p=80") {
			t.Errorf("%q became %q", notebook, made)
		}
		if strings.ContainsFunc(made, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'`\\^|<>", r) }) {
			t.Errorf("%q became %q, which a shell or browser may read in another way", notebook, made)
		}
	})
}
