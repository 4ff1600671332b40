package client

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAReleasesFileIsNeverFetchedByHTTPAfterHTTPS(t *testing.T) {
	from := func(url string) *http.Request {
		req, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	if onward(from("http://b"), []*http.Request{from("https://a")}) == nil {
		t.Error("followed from https to http")
	}
	if err := onward(from("https://b"), []*http.Request{from("http://a")}); err != nil {
		t.Errorf("not followed to https: %v", err)
	}
}

func TestAReleasesFileIsNotSoughtForEver(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
	}))
	defer s.Close()
	if _, err := ReleaseFile(t.Context(), s.URL+"/a", 100); err == nil || !strings.Contains(err.Error(), "too many redirects") || asked != maxRedirects+1 {
		t.Errorf("%d requests: %v", asked, err)
	}
}
