package colabapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// site is where Google's services are: Google's own, or a stand-in on this computer.
type site struct {
	test *url.URL // nil for Google's own
}

// siteOf returns Google's own site unless TestVariable names a stand-in.
func siteOf(getenv func(string) string) (site, error) {
	text := getenv(TestVariable)
	if text == "" {
		return site{}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Port() == "" || !isLoopback(u.Hostname()) {
		return site{}, fmt.Errorf("%s is for tests: it must have the form http://127.0.0.1:PORT; unset it to use Google", TestVariable)
	}
	return site{test: u}, nil
}

// isLoopback reports whether host is an address of this computer, written as a number.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// isLocalName reports whether host is a name of this computer (RFC 6761).
func isLocalName(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// api returns the base URL of the API.
func (s site) api() string {
	if s.test != nil {
		return s.test.String()
	}
	return "https://colaboratory.googleapis.com"
}

// tokenURL returns where application default credentials get tokens.
func (s site) tokenURL() string {
	if s.test != nil {
		return s.test.String() + "/token"
	}
	return "https://oauth2.googleapis.com/token"
}

// Hosts of Google's that client JSON files name.
var (
	authHosts  = []string{"accounts.google.com"}
	tokenHosts = []string{"oauth2.googleapis.com", "accounts.google.com", "www.googleapis.com"}
)

// checkOAuthURL refuses addresses that are not Google's: the file that names them may come
// from a stranger, who would get the person's login.
func (s site) checkOAuthURL(text string, hosts []string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.User != nil || u.Fragment != "":
		return errors.New("it cannot be read")
	case s.test != nil && u.Scheme == s.test.Scheme && u.Host == s.test.Host:
		return nil
	case u.Scheme != "https" || !slices.Contains(hosts, u.Host):
		return fmt.Errorf("%.100q is not Google's: expected https://%s", u.Host, hosts[0])
	}
	return nil
}

// proxyDomains are the domains of the proxies in front of VMs. The older one is unverified
// for this API.
var proxyDomains = []string{".colab.dev", ".colab.googleusercontent.com"}

// checkProxyURL refuses a VM's address that is not one of Google's proxies: the relay sends
// code and secrets there.
func (s site) checkProxyURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("the VM's address cannot be read")
	}
	domain := func(suffix string) bool { return strings.HasSuffix(u.Host, suffix) } // with a port, none fits
	switch {
	case s.test != nil && u.Scheme == "http" && isLocalName(u.Hostname()):
	case u.Scheme == "https" && slices.ContainsFunc(proxyDomains, domain):
	default:
		return nil, fmt.Errorf("the VM's address is at %q, which is not Google's", u.Host[:min(len(u.Host), 100)])
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func localDial(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(address); err == nil && isLocalName(host) {
			address = net.JoinHostPort("127.0.0.1", port)
		}
		return dial(ctx, network, address)
	}
}
