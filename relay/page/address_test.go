package page

import (
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
		"javascript:alert(1)//colab.google.com":                       "https://",
		"https://evil.example/":                                       "does not belong",
		"https://colab.research.google.com.evil.com/":                 "does not belong",
		"https://colab.research.google.com@evil.com/":                 "names a user",
		"https://evil.com#https://colab.google.com/":                  "does not belong",
		"https://colab.google.com/#a#b":                               `more than one "#"`,
		"https://colab.google.com/\"x":                                "percent-encoded",
		"https://colab.google.com\\@evil.example":                     "",
		"https://c\u043elab.google.com/":                              "percent-encoded",
		"https://colab.google.com/\nx":                                "",
		"https://colab.google.com/%zz":                                "no valid form",
		"https://colab.google.com/" + strings.Repeat("a", maxAddress): "2000",
	} {
		err := CheckNotebookURL(bad)
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
		"https://colab.google.com/a%2Fb?":                                 "https://colab.google.com/a%2Fb?p=8765" + end,
		"https://colab.google.com/x#mcpProxyToken=old&mcpProxyPort=1":     "https://colab.google.com/x?p=8765" + end,
	} {
		if got, err := address(notebook, 8765, "T"); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", notebook, got, err, want)
		}
	}
}
