package page

import (
	"net/url"
	"strings"
)

// attempt is a request as a hostile program writes it. PORT and TOKEN stand for the right
// ones.
type attempt struct {
	line    string
	headers []string
	body    string
}

// good returns the request of Colab's page.
func good() attempt {
	return attempt{line: "GET /?access_token=TOKEN HTTP/1.1", headers: []string{
		"Host: localhost:PORT", "Connection: Upgrade", "Upgrade: websocket", "Origin: https://colab.research.google.com",
		"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: mcp",
	}}
}

func line(s string) attempt { a := good(); a.line = s; return a }

func target(s string) attempt { return line("GET " + s + " HTTP/1.1") }

// with replaces the headers of a name by others; a name alone removes them.
func with(name string, values ...string) attempt { return good().with(name, values...) }

func (a attempt) with(name string, values ...string) attempt {
	var kept []string
	for _, h := range a.headers {
		if !strings.HasPrefix(h, name+":") {
			kept = append(kept, h)
		}
	}
	for _, v := range values {
		kept = append(kept, name+": "+v)
	}
	a.headers = kept
	return a
}

func origin(values ...string) attempt { return with("Origin", values...) }
func host(values ...string) attempt   { return with("Host", values...) }
func bearer(values ...string) attempt { return target("/").with("Authorization", values...) }

func body(headers []string, text string) attempt {
	a := good()
	a.headers, a.body = append(a.headers, headers...), text
	return a
}

// behind is a refused request without a token, and the page's own in the same connection.
func behind(header string) attempt {
	a, second := target("/").with("Origin", "https://colab.google.com"), good()
	if strings.HasPrefix(header, "Origin:") {
		a = a.with("Origin")
	}
	a.headers = append(a.headers, header)
	a.body = second.line + "\r\n" + strings.Join(append(second.headers, "", ""), "\r\n")
	return a
}

// hostile are requests and the status of their answer; 4 stands for any from 400 to 499.
var hostile = map[string]map[string]struct {
	attempt attempt
	want    int
}{
	"origin": {
		"none":                       {origin(), 403},
		"empty":                      {origin(""), 403},
		"null":                       {origin("null"), 403},
		"foreign":                    {origin("https://evil.example"), 403},
		"http":                       {origin("http://colab.research.google.com"), 403},
		"ws":                         {origin("ws://colab.research.google.com"), 403},
		"wss":                        {origin("wss://colab.research.google.com"), 403},
		"lookalike suffix":           {origin("https://colab.research.google.com.evil.example"), 403},
		"lookalike prefix":           {origin("https://evilcolab.research.google.com"), 403},
		"lookalike with hyphen":      {origin("https://colab-research.google.com"), 403},
		"subdomain":                  {origin("https://x.colab.research.google.com"), 403},
		"parent domain":              {origin("https://research.google.com"), 403},
		"google.com":                 {origin("https://google.com"), 403},
		"colab.google":               {origin("https://colab.google"), 403},
		"default port":               {origin("https://colab.research.google.com:443"), 403},
		"other port":                 {origin("https://colab.research.google.com:8443"), 403},
		"trailing dot":               {origin("https://colab.research.google.com."), 403},
		"trailing slash":             {origin("https://colab.research.google.com/"), 403},
		"path":                       {origin("https://colab.research.google.com/drive/x"), 403},
		"query":                      {origin("https://colab.research.google.com?x"), 403},
		"upper case host":            {origin("https://COLAB.research.google.com"), 403},
		"upper case scheme":          {origin("HTTPS://colab.research.google.com"), 403},
		"user":                       {origin("https://x@colab.research.google.com"), 403},
		"the right one as user":      {origin("https://colab.research.google.com@evil.example"), 403},
		"Cyrillic o":                 {origin("https://c\u043elab.research.google.com"), 403},
		"punycode":                   {origin("https://xn--clab-5qd.research.google.com"), 403},
		"percent":                    {origin("https://colab%2eresearch.google.com"), 403},
		"backslash":                  {origin(`https:\\colab.research.google.com`), 403},
		"fullwidth dots":             {origin("https://colab\uff0eresearch\uff0egoogle\uff0ecom"), 403},
		"ours":                       {origin("http://localhost:PORT"), 403},
		"ours by number":             {origin("http://127.0.0.1:PORT"), 403},
		"ours over https":            {origin("https://localhost:PORT"), 403},
		"file":                       {origin("file://"), 403},
		"extension":                  {origin("chrome-extension://abcdefghijklmnop"), 403},
		"sandboxed data":             {origin("data:text/html,x"), 403},
		"two right ones":             {origin("https://colab.research.google.com", "https://colab.research.google.com"), 403},
		"right, then foreign":        {origin("https://colab.research.google.com", "https://evil.example"), 403},
		"foreign, then right":        {origin("https://evil.example", "https://colab.google.com"), 403},
		"a list":                     {origin("https://colab.research.google.com, https://evil.example"), 403},
		"a list with spaces":         {origin("https://colab.research.google.com https://evil.example"), 403},
		"only in Referer":            {origin().with("Referer", "https://colab.research.google.com/"), 403},
		"only in Sec-WebSocket":      {origin().with("Sec-WebSocket-Origin", "https://colab.research.google.com"), 403},
		"foreign with Sec-Fetch":     {origin("https://evil.example").with("Sec-Fetch-Site", "same-origin"), 403},
		"a tab character":            {origin("https://colab.research.google.com\t.evil.example"), 403},
		"a name of 10,000 letters":   {origin("https://" + strings.Repeat("a", 10_000)), 403},
		"NUL":                        {origin("https://colab.research.google.com\x00"), 400},
		"forwarded as the right one": {origin("https://evil.example").with("X-Forwarded-Proto", "https"), 403},
	},
	"host": {
		"none":                    {host(), 400},
		"empty":                   {host(""), 403},
		"foreign":                 {host("evil.example"), 403},
		"foreign with port":       {host("evil.example:PORT"), 403},
		"rebound name":            {host("rebind.evil.example:PORT"), 403},
		"nip.io":                  {host("127.0.0.1.nip.io:PORT"), 403},
		"localtest.me":            {host("localtest.me:PORT"), 403},
		"suffix":                  {host("localhost.evil.example:PORT"), 403},
		"trailing dot":            {host("localhost.:PORT"), 403},
		"upper case":              {host("LOCALHOST:PORT"), 403},
		"without port":            {host("localhost"), 403},
		"empty port":              {host("localhost:"), 403},
		"other port":              {host("localhost:1"), 403},
		"port with zero":          {host("localhost:0PORT"), 403},
		"number without port":     {host("127.0.0.1"), 403},
		"127.0.0.2":               {host("127.0.0.2:PORT"), 403},
		"short number":            {host("127.1:PORT"), 403},
		"one number":              {host("2130706433:PORT"), 403},
		"octal number":            {host("0177.0.0.1:PORT"), 403},
		"hexadecimal number":      {host("0x7f000001:PORT"), 403},
		"any address":             {host("0.0.0.0:PORT"), 403},
		"any IPv6 address":        {host("[::]:PORT"), 403},
		"mapped IPv6 address":     {host("[::ffff:127.0.0.1]:PORT"), 403},
		"long IPv6 address":       {host("[0:0:0:0:0:0:0:1]:PORT"), 403},
		"IPv6 address with zone":  {host("[::1%25lo]:PORT"), 4},
		"ip6-localhost":           {host("ip6-localhost:PORT"), 403},
		"with user":               {host("x@localhost:PORT"), 4},
		"with path":               {host("localhost:PORT/x"), 4},
		"two right ones":          {host("localhost:PORT", "localhost:PORT"), 400},
		"right, then foreign":     {host("localhost:PORT", "evil.example"), 400},
		"foreign, then right":     {host("evil.example", "localhost:PORT"), 400},
		"a list":                  {host("localhost:PORT, evil.example"), 4},
		"forwarded":               {host("evil.example").with("X-Forwarded-Host", "localhost:PORT"), 403},
		"named by Forwarded":      {host("evil.example").with("Forwarded", "host=localhost:PORT"), 403},
		"absolute target":         {target("http://localhost:PORT/?access_token=TOKEN").with("Host", "evil.example"), 400},
		"absolute target, both":   {target("http://localhost:PORT/?access_token=TOKEN"), 400},
		"absolute foreign target": {target("http://evil.example/?access_token=TOKEN"), 400},
		"absolute ws target":      {target("ws://localhost:PORT/?access_token=TOKEN"), 400},
		"target without scheme":   {target("//localhost:PORT/?access_token=TOKEN"), 4},
	},
	"token": {
		"none":                         {target("/"), 401},
		"empty query":                  {target("/?"), 401},
		"empty":                        {target("/?access_token="), 403},
		"without value":                {target("/?access_token"), 403},
		"wrong":                        {target("/?access_token=AAAAAAAAAAAAAAAAAAAAAA"), 403},
		"cut":                          {target("/?access_token=T"), 403},
		"one character more":           {target("/?access_token=TOKENA"), 403},
		"padding":                      {target("/?access_token=TOKEN="), 403},
		"other case":                   {target("/?access_token=lower(TOKEN)"), 403},
		"doubled":                      {target("/?access_token=TOKEN&access_token=TOKEN"), 403},
		"right, then wrong":            {target("/?access_token=TOKEN&access_token=x"), 403},
		"wrong, then right":            {target("/?access_token=x&access_token=TOKEN"), 403},
		"doubled by another spelling":  {target("/?access_token=TOKEN&access%5Ftoken=TOKEN"), 403},
		"only in path":                 {target("/TOKEN"), 403},
		"only in path, with name":      {target("/access_token=TOKEN"), 403},
		"only in fragment":             {target("/#access_token=TOKEN"), 4},
		"in query behind fragment":     {target("/?x#access_token=TOKEN"), 401},
		"before fragment":              {target("/?access_token=TOKEN#x"), 403},
		"other name":                   {target("/?token=TOKEN"), 401},
		"upper case name":              {target("/?ACCESS_TOKEN=TOKEN"), 401},
		"list name":                    {target("/?access_token[]=TOKEN"), 401},
		"behind a semicolon":           {target("/?x;access_token=TOKEN"), 403},
		"before a semicolon":           {target("/?access_token=TOKEN;x"), 403},
		"bad percent":                  {target("/?access_token=TOKEN%"), 403},
		"bad percent elsewhere":        {target("/?access_token=TOKEN&x=%zz"), 403},
		"twice percent-encoded":        {target("/?access_token=%25HEX"), 403},
		"encoded NUL":                  {target("/?access_token=TOKEN%00"), 403},
		"encoded space":                {target("/?access_token=TOKEN%20"), 403},
		"plus":                         {target("/?access_token=+TOKEN"), 403},
		"encoded line end":             {target("/?access_token=TOKEN%0d%0aX:%20y"), 403},
		"fullwidth letters":            {target("/?access_token=" + url.QueryEscape(strings.Repeat("\uff21", 22))), 403},
		"not UTF-8":                    {target("/?access_token=%ff%fe"), 403},
		"60,000 characters":            {target("/?access_token=" + strings.Repeat("A", 60_000)), 403},
		"10,000 other parameters":      {target("/?" + strings.Repeat("a=&", 10_000) + "access_token=x"), 403},
		"only in cookie":               {target("/").with("Cookie", "access_token=TOKEN"), 401},
		"only in own header":           {target("/").with("Access-Token", "TOKEN"), 401},
		"only as sub-protocol":         {target("/").with("Sec-WebSocket-Protocol", "mcp, TOKEN"), 401},
		"only as password in query":    {target("/?password=TOKEN"), 401},
		"bearer, wrong":                {bearer("Bearer AAAAAAAAAAAAAAAAAAAAAA"), 403},
		"bearer, empty":                {bearer("Bearer "), 400},
		"bearer, alone":                {bearer("Bearer"), 400},
		"bearer, two spaces":           {bearer("Bearer  TOKEN"), 400},
		"bearer, two tokens":           {bearer("Bearer TOKEN TOKEN"), 400},
		"bearer, a list":               {bearer("Bearer TOKEN,TOKEN"), 400},
		"bearer, lower case":           {bearer("bearer TOKEN"), 400},
		"basic":                        {bearer("Basic eDp5"), 400},
		"token alone":                  {bearer("TOKEN"), 400},
		"two bearers":                  {bearer("Bearer TOKEN", "Bearer TOKEN"), 403},
		"query and bearer":             {with("Authorization", "Bearer TOKEN"), 403},
		"query right, bearer wrong":    {with("Authorization", "Bearer x"), 403},
		"query wrong, bearer right":    {target("/?access_token=x").with("Authorization", "Bearer TOKEN"), 403},
		"as proxy's authorization":     {target("/").with("Proxy-Authorization", "Bearer TOKEN"), 401},
		"the one of the example reply": {target("/?access_token=s3pPLMBiTxaQ9kYGzzhZRb"), 403},
	},
	"request": {
		"POST":                          {line("POST /?access_token=TOKEN HTTP/1.1"), 405},
		"PUT":                           {line("PUT /?access_token=TOKEN HTTP/1.1"), 405},
		"DELETE":                        {line("DELETE /?access_token=TOKEN HTTP/1.1"), 405},
		"HEAD":                          {line("HEAD /?access_token=TOKEN HTTP/1.1"), 405},
		"TRACE":                         {line("TRACE /?access_token=TOKEN HTTP/1.1"), 405},
		"lower case method":             {line("get /?access_token=TOKEN HTTP/1.1"), 405},
		"preflight":                     {line("OPTIONS /?access_token=TOKEN HTTP/1.1").with("Access-Control-Request-Method", "GET"), 405},
		"preflight of private network":  {line("OPTIONS / HTTP/1.1").with("Access-Control-Request-Private-Network", "true"), 405},
		"OPTIONS *":                     {line("OPTIONS * HTTP/1.1"), 4},
		"CONNECT":                       {line("CONNECT localhost:PORT HTTP/1.1"), 4},
		"CONNECT elsewhere":             {line("CONNECT evil.example:443 HTTP/1.1"), 4},
		"other path":                    {target("/x?access_token=TOKEN"), 403},
		"two slashes":                   {target("//?access_token=TOKEN"), 403},
		"dot path":                      {target("/.?access_token=TOKEN"), 403},
		"encoded slash":                 {target("/%2f?access_token=TOKEN"), 403},
		"encoded dot":                   {target("/%2e?access_token=TOKEN"), 403},
		"NUL in path":                   {target("/%00?access_token=TOKEN"), 403},
		"empty path":                    {target("?access_token=TOKEN"), 4},
		"control status":                {target("/control/status"), 403},
		"control status with token":     {target("/control/status?access_token=TOKEN"), 403},
		"control status with bearer":    {target("/control/status").with("Authorization", "Bearer TOKEN"), 403},
		"control close":                 {line("POST /control/close HTTP/1.1"), 403},
		"control close with bearer":     {line("POST /control/close HTTP/1.1").with("Authorization", "Bearer TOKEN"), 403},
		"control by another way":        {target("/x/../control/status"), 403},
		"HTTP/1.0":                      {line("GET /?access_token=TOKEN HTTP/1.0"), 426},
		"HTTP/0.9":                      {attempt{line: "GET /"}, 400},
		"HTTP/2.0":                      {line("GET /?access_token=TOKEN HTTP/2.0"), 505},
		"HTTP/2 preface":                {attempt{line: "PRI * HTTP/2.0", body: "SM\r\n\r\n"}, 4},
		"TLS":                           {attempt{line: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"}, 4},
		"no HTTP":                       {attempt{line: "\x00\x00\x00"}, 400},
		"body":                          {body([]string{"Content-Length: 1"}, "x"), 400},
		"announced body":                {body([]string{"Content-Length: 1000000000"}, ""), 400},
		"chunked":                       {body([]string{"Transfer-Encoding: chunked"}, "1\r\nx\r\n0\r\n\r\n"), 400},
		"two lengths":                   {body([]string{"Content-Length: 0", "Content-Length: 5"}, "GET /"), 400},
		"length and chunked":            {body([]string{"Content-Length: 5", "Transfer-Encoding: chunked"}, "0\r\n\r\nGET / HTTP/1.1\r\n\r\n"), 400},
		"unknown encoding":              {body([]string{"Transfer-Encoding: xchunked"}, ""), 501},
		"a good one behind a bad one":   {behind("Origin: null"), 403},
		"a good one behind a preflight": {behind("Access-Control-Request-Method: GET"), 401},
		"negative length":               {body([]string{"Content-Length: -1"}, ""), 400},
		"header name with space":        {body([]string{"Origin : https://evil.example"}, ""), 400},
		"header without colon":          {body([]string{"Origin"}, ""), 400},
		"NUL in a header":               {body([]string{"X: \x00"}, ""), 400},
		"one huge header":               {body([]string{"X: " + strings.Repeat("a", 80<<10)}, ""), 431},
		"a thousand headers":            {body(strings.Split(strings.Repeat("X: "+strings.Repeat("a", 100)+"\n", 1000), "\n")[:1000], ""), 431},
		"huge target":                   {target("/?access_token=TOKEN&x=" + strings.Repeat("a", 80<<10)), 431},
	},
	"handshake": {
		"no upgrade":             {with("Upgrade"), 426},
		"upgrade to h2c":         {with("Upgrade", "h2c"), 426},
		"no connection":          {with("Connection"), 426},
		"connection closes":      {with("Connection", "close"), 426},
		"no version":             {with("Sec-WebSocket-Version"), 400},
		"old version":            {with("Sec-WebSocket-Version", "8"), 400},
		"no key":                 {with("Sec-WebSocket-Key"), 400},
		"two keys":               {with("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ=="), 400},
		"short key":              {with("Sec-WebSocket-Key", "dGhl"), 400},
		"key that is no base64":  {with("Sec-WebSocket-Key", "????????????????????????"), 400},
		"no mcp":                 {with("Sec-WebSocket-Protocol"), 400},
		"empty protocol":         {with("Sec-WebSocket-Protocol", ""), 400},
		"other protocol":         {with("Sec-WebSocket-Protocol", "chat"), 400},
		"upper case MCP":         {with("Sec-WebSocket-Protocol", "MCP"), 400},
		"longer protocol":        {with("Sec-WebSocket-Protocol", "mcp2"), 400},
		"protocol in quotes":     {with("Sec-WebSocket-Protocol", `"mcp"`), 400},
		"protocols and a blank":  {with("Sec-WebSocket-Protocol", "chat mcp"), 400},
		"protocol in the target": {target("/?access_token=TOKEN&protocol=mcp").with("Sec-WebSocket-Protocol"), 400},
	},
}

// fine are requests that a page, or Google's own client, may send.
var fine = map[string]attempt{
	"colab.research.google.com":   good(),
	"colab.google.com":            origin("https://colab.google.com"),
	"127.0.0.1":                   host("127.0.0.1:PORT"),
	"[::1]":                       host("[::1]:PORT"),
	"bearer":                      bearer("Bearer TOKEN"),
	"percent-encoded":             target("/?access_token=%HEX"),
	"other parameters":            target("/?p=1&access_token=TOKEN&x=%20"),
	"mcp among protocols":         with("Sec-WebSocket-Protocol", "chat, mcp"),
	"mcp in a second header":      with("Sec-WebSocket-Protocol", "chat", "mcp"),
	"compression is offered":      with("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits"),
	"Sec-Fetch of a browser":      with("Sec-Fetch-Site", "cross-site").with("Sec-Fetch-Mode", "websocket").with("Sec-Fetch-Dest", "empty"),
	"folded header":               body([]string{"X: y", " Origin: https://evil.example"}, ""),
	"cookies of localhost, 40 KB": with("Cookie", "a="+strings.Repeat("b", 40_000)),
}
