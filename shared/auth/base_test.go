package auth

import (
	"net/http"
	"testing"
)

// net/http sends a GET for an empty method and "/" for an empty path.
func TestEmptyMethodAndPathAreSignedAsTheyAreSent(t *testing.T) {
	short, err := http.NewRequest("", "http://example.com?a=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	short.Method = ""
	whole, err := http.NewRequest("GET", "http://example.com/?a=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := requestBase(short, "", false, "p"), requestBase(whole, "", false, "p"); a != b {
		t.Errorf("%q is signed instead of %q", a, b)
	}
}
