package page

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const (
	// EmptyNotebook is the address of Colab's empty notebook.
	EmptyNotebook = "https://colab.research.google.com/notebooks/empty.ipynb"
	// maxAddress bounds a notebook's address, in bytes. Browsers take at least this much.
	maxAddress = 2000
)

// hosts are the hosts of Colab's page.
var hosts = []string{"colab.research.google.com", "colab.google.com"}

// CheckNotebookURL returns why an address is not one of a notebook in Colab, with what to do,
// or nil. "" stands for Colab's empty notebook.
func CheckNotebookURL(address string) error {
	if address == "" {
		return nil
	}
	_, err := parseNotebookURL(address)
	return err
}

func parseNotebookURL(address string) (*url.URL, error) {
	const example = `"https://colab.research.google.com/drive/ID"`
	if len(address) > maxAddress {
		return nil, fmt.Errorf("the notebook's address has %d bytes, more than %d: copy it from the browser's address bar", len(address), maxAddress)
	}
	refuse := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("the notebook's address %q %s: give one such as %s", address, why, example)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return refuse("has no valid form (" + err.Error() + ")")
	case strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"'\^<>{}|`+"`", r) }):
		return refuse("has a character that must be percent-encoded")
	case strings.Count(address, "#") > 1:
		return refuse(`has more than one "#"`)
	case u.Scheme != "https":
		return refuse("does not begin with https://")
	case u.User != nil:
		return refuse("names a user")
	case u.Host != hosts[0] && u.Host != hosts[1]:
		return refuse("does not belong to Colab")
	}
	return u, nil
}

// address returns the URL that makes Colab's page dial this port with this token.
func address(notebook string, port int, token string) (string, error) {
	if notebook == "" {
		notebook = EmptyNotebook
	}
	u, err := parseNotebookURL(notebook)
	if err != nil {
		return "", err
	}
	number := strconv.Itoa(port)
	query := "p=" + number
	if u.RawQuery != "" {
		query = u.RawQuery + "&" + query
	}
	u.RawQuery, u.Fragment, u.RawFragment = query, "", ""
	return u.String() + "#mcpProxyToken=" + token + "&mcpProxyPort=" + number, nil
}
