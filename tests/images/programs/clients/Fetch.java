// java Fetch.java URL: Java's HTTP client, or its WebSocket client where the scheme is ws or wss.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.WebSocket;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;

public class Fetch {
    public static void main(String[] arguments) throws Exception {
        URI uri = URI.create(arguments[0]);
        HttpClient client = HttpClient.newHttpClient();
        if (uri.getScheme().startsWith("ws")) {
            System.out.println(echo(client, uri));
            System.exit(0);
        }
        HttpRequest request = HttpRequest.newBuilder(uri).build();
        HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(response.version() + " " + response.statusCode() + " " + response.body());
        System.exit(response.statusCode() == 200 ? 0 : 4);
    }

    static String echo(HttpClient client, URI uri) throws Exception {
        CompletableFuture<String> answer = new CompletableFuture<>();
        WebSocket socket = client.newWebSocketBuilder().buildAsync(uri, new WebSocket.Listener() {
            @Override
            public CompletionStage<?> onText(WebSocket from, CharSequence text, boolean last) {
                answer.complete(text.toString());
                return null;
            }
        }).get(15, TimeUnit.SECONDS);
        socket.sendText("salute over a websocket", true).get(15, TimeUnit.SECONDS);
        return answer.get(15, TimeUnit.SECONDS);
    }
}
