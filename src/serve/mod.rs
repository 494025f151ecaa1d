//! `milepost serve`: who is let in, and from when to when.

pub mod guard;

/// Temporary.
pub async fn run_tmp(file: &std::path::Path) {
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
    let routes = crate::routes::Routes::load(file).unwrap();
    let proxy = crate::http::Proxy::new(&routes, crate::http::Via::random().unwrap()).unwrap();
    let places = std::sync::Arc::new(crate::http::places::Places::new(routes.iter()));
    let listener = tokio::net::TcpListener::bind(routes.server().listen).await.unwrap();
    eprintln!("listening on {}", routes.server().listen);
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let (proxy, places) = (proxy.clone(), places.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let (proxy, places) = (proxy.clone(), places.clone());
                async move {
                    let place = places.find(request.uri().path());
                    Ok::<_, std::convert::Infallible>(match place {
                        Some(place) => proxy.handle(place, request, false).await,
                        None => {
                            let mut r = http::Response::new(crate::http::Body::empty());
                            *r.status_mut() = http::StatusCode::NOT_FOUND;
                            r
                        }
                    })
                }
            });
            let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).max_buf_size(64 << 10);
            if let Err(error) = builder.serve_connection(TokioIo::new(tcp), service).await {
                eprintln!("{error}");
            }
        });
    }
}
